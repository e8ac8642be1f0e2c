"""A reader of launch calls that answers or refuses as EC2 does.

It reads the keyword arguments of boto3's run_instances and create_fleet. It shares no code with the
engine, so tag keys and EC2's rules stand here a second time. It refuses an unknown argument, as EC2
refuses an unknown parameter.

Sources: EC2's API reference (RunInstances, CreateFleet, SpotMarketOptions, SpotOptions,
OnDemandOptions), "Behavior of Spot Instance interruptions", "Launch instances using Capacity
Blocks", "Tag restrictions". Where the reference names no code, the code here is the nearest one.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from slurmplugins.cloud import error_codes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

TOKEN_LENGTH = 64
TAG_LIMIT, KEY_LENGTH, VALUE_LENGTH = 50, 128, 256
MOST = 1000
"""Instances of one call: the documented maximum of MinTargetCapacity."""

SPOT_STRATEGIES = {
    "lowest-price",
    "diversified",
    "capacity-optimized",
    "capacity-optimized-prioritized",
    "price-capacity-optimized",
}
DEMAND_STRATEGIES = {"lowest-price", "prioritized"}
KINDS, BEHAVIOURS = ("one-time", "persistent"), ("terminate", "stop", "hibernate")
RESOURCES = {"instance", "volume", "network-interface", "spot-instances-request"}


@dataclass(frozen=True)
class Choice:
    """An instance type in a subnet.

    Without a subnet, it lies in the launch template's.
    """

    type: str
    subnet: str = ""
    priority: float = 0.0


@dataclass(frozen=True)
class Call:
    """The content of a launch call.

    `tags` are those of the instances alone.
    """

    action: str
    token: str
    template: str
    choices: tuple[Choice, ...]
    market: str
    least: int
    most: int
    tags: Mapping[str, str]
    reservation: str = ""

    @property
    def fleet(self) -> bool:
        return self.action == "CreateFleet"


def run_instances(sent: Mapping[str, Any], blocks: Collection[str] = ()) -> Call:
    """Read RunInstances.

    `blocks` are the reservations that are capacity blocks.
    """
    _known(
        sent,
        {
            "LaunchTemplate", "InstanceType", "MinCount", "MaxCount", "ClientToken", "SubnetId",
            "TagSpecifications", "InstanceMarketOptions", "CapacityReservationSpecification",
        },
    )  # fmt: skip
    least, most = sent["MinCount"], sent["MaxCount"]
    if not 1 <= least <= most <= MOST:
        _refuse("InvalidParameterValue", f"{least} to {most} instances")
    market = _market(sent.get("InstanceMarketOptions", {}))
    reservation = _reservation(sent.get("CapacityReservationSpecification", {}), market, blocks)
    tags = _tags(sent.get("TagSpecifications", ()), RESOURCES)
    if "spot-instances-request" in tags and market != "spot":
        _refuse("InvalidParameterValue", "no spot instances request is created by this request")
    return Call(
        action="RunInstances",
        token=_token(sent),
        template=_template(sent["LaunchTemplate"]),
        choices=(Choice(sent["InstanceType"], sent.get("SubnetId", "")),),
        market="spot" if market == "spot" else "on-demand",
        least=least,
        most=most,
        tags=tags.get("instance", {}),
        reservation=reservation,
    )


def create_fleet(sent: Mapping[str, Any]) -> Call:
    """Read CreateFleet of type instant."""
    _known(
        sent,
        {
            "Type", "ClientToken", "LaunchTemplateConfigs", "TargetCapacitySpecification",
            "SpotOptions", "OnDemandOptions", "TagSpecifications",
        },
    )  # fmt: skip
    if sent.get("Type") != "instant":
        _refuse("InvalidParameterValue", "only an instant fleet answers with its instances")
    target = sent["TargetCapacitySpecification"]
    _known(target, {"TotalTargetCapacity", "DefaultTargetCapacityType"})
    market, most = target["DefaultTargetCapacityType"], target["TotalTargetCapacity"]
    if market not in {"spot", "on-demand"} or not 1 <= most <= MOST:
        _refuse("InvalidParameterValue", f"{most} {market}")
    spot = _options(sent.get("SpotOptions", {}), SPOT_STRATEGIES)
    demand = _options(sent.get("OnDemandOptions", {}), DEMAND_STRATEGIES)
    options = spot if market == "spot" else demand
    if (least := options.get("MinTargetCapacity", 0)) > most:
        _refuse("InvalidParameterValue", f"at least {least} of {most}")
    (config,) = sent["LaunchTemplateConfigs"]
    return Call(
        action="CreateFleet",
        token=_token(sent),
        template=_template(config["LaunchTemplateSpecification"]),
        choices=_choices(config["Overrides"], options.get("AllocationStrategy", "")),
        market=market,
        least=least,
        most=most,
        tags=_tags(sent.get("TagSpecifications", ()), {"fleet", "instance"}).get("instance", {}),
    )


def hostlist(text: str) -> list[str]:
    """Expand Slurm's hostlist.

    Each bracket is a list of numbers and ranges.
    """
    found = []
    for name in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        parts = re.split(r"\[([^\]]*)\]", name)
        choices = [_numbers(part) if at % 2 else [part] for at, part in enumerate(parts)]
        found += ["".join(item) for item in itertools.product(*choices)]
    return found


def whole(tags: Mapping[str, str], key: str, between: str) -> str:
    """Join a value that goes on in `key.2`, `key.3` and so on."""
    parts = itertools.chain([key], (f"{key}.{number}" for number in itertools.count(2)))
    return between.join(tags[part] for part in itertools.takewhile(tags.__contains__, parts))


def _numbers(text: str) -> list[str]:
    found = []
    for item in text.split(","):
        first, _, last = item.partition("-")
        found += [f"{n:0{len(first)}d}" for n in range(int(first), int(last or first) + 1)]
    return found


def _market(given: Mapping[str, Any]) -> str:
    """Return the market's name.

    A one-time request can't be stopped and started again.
    """
    _known(given, {"MarketType", "SpotOptions"})
    name = str(given.get("MarketType", "on-demand"))
    if name not in {"on-demand", "spot", "capacity-block"}:
        _refuse("InvalidParameterValue", f"no market {name}")
    options = given.get("SpotOptions", {})
    if options and name != "spot":
        _refuse("InvalidParameterCombination", f"SpotOptions in the market {name}")
    _known(options, {"SpotInstanceType", "InstanceInterruptionBehavior"})
    kind = options.get("SpotInstanceType", "one-time")
    behaviour = options.get("InstanceInterruptionBehavior", "terminate")
    if (kind, behaviour) not in set(itertools.product(KINDS, BEHAVIOURS)):
        _refuse("InvalidParameterValue", f"{kind}, {behaviour}")
    if (kind == "persistent") != (behaviour != "terminate"):
        _refuse("InvalidParameterCombination", f"a {kind} request with {behaviour}")
    return name


def _reservation(given: Mapping[str, Any], market: str, blocks: Collection[str]) -> str:
    """Return the only reservation that the instances may use."""
    _known(given, {"CapacityReservationTarget"})
    target = given.get("CapacityReservationTarget", {})
    _known(target, {"CapacityReservationId"})
    found = str(target.get("CapacityReservationId", ""))
    if found and market == "spot":
        _refuse("InvalidParameterCombination", "a spot instance uses no reservation")
    if market == "capacity-block" and not found:
        _refuse("InvalidParameterCombination", "a capacity block's market without its reservation")
    if found and (found in blocks) != (market == "capacity-block"):
        _refuse("InvalidParameterCombination", f"{found} in the market {market}")
    return found


def _options(given: Mapping[str, Any], strategies: Collection[str]) -> Mapping[str, Any]:
    """Check a fleet's options for one market and return them."""
    _known(
        given,
        {
            "AllocationStrategy", "MinTargetCapacity", "SingleAvailabilityZone",
            "SingleInstanceType",
        }
        | ({"InstanceInterruptionBehavior"} if "diversified" in strategies else set()),
    )  # fmt: skip
    if (strategy := given.get("AllocationStrategy", "lowest-price")) not in strategies:
        _refuse("InvalidParameterValue", f"no strategy {strategy} in this market")
    if given.get("InstanceInterruptionBehavior", "terminate") != "terminate":
        _refuse("InvalidParameterCombination", "only a fleet of type maintain can be stopped")
    single = given.get("SingleAvailabilityZone") or given.get("SingleInstanceType")
    if "MinTargetCapacity" in given and not single:
        _refuse("InvalidParameterCombination", "a minimum needs one zone or one instance type")
    return given


def _choices(overrides: Sequence[Mapping[str, Any]], strategy: str) -> tuple[Choice, ...]:
    """Return the overrides in the order in which EC2 tries them.

    Where the strategy reads priorities, the lowest number comes first.
    """
    for item in overrides:
        _known(item, {"InstanceType", "SubnetId", "Priority"})
    found = [
        Choice(item["InstanceType"], item.get("SubnetId", ""), float(item.get("Priority", 0)))
        for item in overrides
    ]
    if len({(item.type, item.subnet) for item in found}) < len(found):
        _refuse("InvalidFleetConfig", "The fleet configuration contains duplicate instance pools.")
    if strategy.endswith("prioritized"):
        found.sort(key=lambda item: item.priority)
    return tuple(found)


def _template(given: Mapping[str, Any]) -> str:
    _known(given, {"LaunchTemplateName", "Version"})
    return str(given["LaunchTemplateName"])


def _token(sent: Mapping[str, Any]) -> str:
    token = str(sent.get("ClientToken", ""))
    if len(token) > TOKEN_LENGTH or not token.isascii():
        _refuse("InvalidParameterValue", f"a token of {len(token)} characters")
    return token


def _tags(
    given: Sequence[Mapping[str, Any]], resources: Collection[str]
) -> dict[str, dict[str, str]]:
    """Return the tags by resource type."""
    found: dict[str, dict[str, str]] = {}
    for item in given:
        kind, pairs = item["ResourceType"], item["Tags"]
        if kind not in resources or kind in found:
            _refuse("InvalidParameterValue", f"tags for {kind}")
        found[kind] = {pair["Key"]: pair["Value"] for pair in pairs}
        if len(found[kind]) < len(pairs):
            _refuse("InvalidParameterValue", "the same tag key twice")
        if len(pairs) > TAG_LIMIT:
            _refuse("TagLimitExceeded", f"{len(pairs)} tags")
        for key, value in found[kind].items():
            if not 1 <= len(key) <= KEY_LENGTH or len(value) > VALUE_LENGTH or key[:4] == "aws:":
                _refuse("InvalidParameterValue", f"the tag {key}")
    return found


def _known(given: Mapping[str, Any], names: Collection[str]) -> None:
    if unknown := sorted(set(given).difference(names)):
        _refuse("UnknownParameter", ", ".join(unknown))


def _refuse(code: str, message: str) -> NoReturn:
    raise error_codes.error(code, message)
