"""From a LaunchRequest to the arguments of RunInstances, and from an answer to Instances. Pure."""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from slurmplugins import names, tags
from slurmplugins.errors import BadName
from slurmplugins.health import Health, ScheduledEvent
from slurmplugins.model import Instance, InstanceState, Lifecycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurmplugins.model import LaunchRequest
    from slurmplugins.names import NodeName

MAX_LAUNCH: Final = 500
"""Machines in one call. EC2 advises smaller calls than its limit of 1,000 for large launches."""

TROUBLE_FILTERS: Final = (
    ("instance-status.status", ("impaired",)),
    ("system-status.status", ("impaired",)),
    (
        "event.code",
        (
            "instance-reboot",
            "instance-retirement",
            "instance-stop",
            "system-maintenance",
            "system-reboot",
        ),
    ),
)
"""Filters of DescribeInstanceStatus, a call each: within one call they would all have to match."""

_OVER: Final = ("[Completed]", "[Canceled]")
"""How EC2 marks an event that is done with; it goes on listing it for a week."""

_ENDED_AT: Final = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def run_instances(request: LaunchRequest) -> dict[str, Any]:
    """The keyword arguments of boto3's run_instances for this request."""
    count = len(request.nodes)
    arguments: dict[str, Any] = {
        # $Latest: an updated stack makes a new version and leaves the default where it was.
        "LaunchTemplate": {
            "LaunchTemplateName": request.launch_template,
            "Version": "$Latest",
        },
        "InstanceType": request.offering.type,
        "SubnetId": request.subnet,
        "MinCount": count,
        "MaxCount": count,
        "ClientToken": client_token(request.attempt),
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tag_list(request)} for kind in _tagged(request)
        ],
    }
    if request.offering.lifecycle is Lifecycle.SPOT:
        arguments["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {
                "SpotInstanceType": "one-time",
                "InstanceInterruptionBehavior": "terminate",
            },
        }
    return arguments


def _tagged(request: LaunchRequest) -> tuple[str, ...]:
    """Everything a launch makes: the head's role may only make what carries the cluster's tag."""
    made = ("instance", "volume", "network-interface")
    spot = request.offering.lifecycle is Lifecycle.SPOT
    return (*made, "spot-instances-request") if spot else made


def client_token(attempt: str) -> str:
    """EC2's idempotency token, at most 64 characters.

    From the attempt, never from the node's name: EC2 remembers a token for a day after its
    machines ended and would answer with those.
    """
    return hashlib.sha256(attempt.encode()).hexdigest()


def tag_list(request: LaunchRequest) -> list[dict[str, str]]:
    values = {
        tags.NAME: f"{request.cluster}-{request.pool}",
        tags.CLUSTER: request.cluster,
        tags.ROLE: tags.ROLE_COMPUTE,
        tags.POOL: request.pool,
        tags.PARTITION: request.partition,
        tags.NODES: names.compress(request.nodes),
        tags.ATTEMPT: request.attempt,
        tags.PRICE: request.offering.price,
    }
    return [{"Key": key, "Value": value} for key, value in values.items()]


def node_of(tag: Mapping[str, str], launch_index: int) -> NodeName | None:
    """Which node a machine is, from its tags and its place in the launch."""
    try:
        if tags.NODE in tag:
            return names.parse(tag[tags.NODE])
        launched = _expanded(tag.get(tags.NODES, ""))
    except BadName:
        return None
    return launched[launch_index] if 0 <= launch_index < len(launched) else None


def instance(described: Mapping[str, Any]) -> Instance:
    """One element of DescribeInstances or RunInstances."""
    tag = {item["Key"]: item["Value"] for item in described.get("Tags", ())}
    state = InstanceState(described["State"]["Name"])
    spot = described.get("InstanceLifecycle") == "spot"
    return Instance(
        id=described["InstanceId"],
        state=state,
        role=tag.get(tags.ROLE, ""),
        node=node_of(tag, int(described.get("AmiLaunchIndex", 0))),
        pool=tag.get(tags.POOL, ""),
        partition=tag.get(tags.PARTITION, ""),
        attempt=tag.get(tags.ATTEMPT, ""),
        type=described.get("InstanceType", ""),
        zone=described.get("Placement", {}).get("AvailabilityZone", ""),
        lifecycle=Lifecycle.SPOT if spot else Lifecycle.ON_DEMAND,
        address=described.get("PrivateIpAddress", ""),
        price=tag.get(tags.PRICE, ""),
        launched_at=_epoch(described.get("LaunchTime")),
        ended_at=_ended_at(described) if state.over else None,
        end_code=described.get("StateReason", {}).get("Code", "") if state.over else "",
    )


def health(
    statuses: Iterable[Mapping[str, Any]], marked: Iterable[Mapping[str, Any]]
) -> tuple[Health, ...]:
    """Elements of DescribeInstanceStatus, and spot requests whose machine is being taken back."""
    found: dict[str, Health] = {}
    for item in statuses:  # a machine with several troubles is in several answers, whole in each
        events = tuple(
            ScheduledEvent(event["Code"], _epoch(event.get("NotBefore")))
            for event in item.get("Events", ())
            if not str(event.get("Description", "")).startswith(_OVER)
        )
        id_, since = item["InstanceId"], _impaired_since(item)
        if events or since is not None:
            found[id_] = Health(id_, since, events)
    for item in marked:
        if id_ := item.get("InstanceId"):
            found[id_] = replace(found.get(id_, Health(id_)), notice=True)
    return tuple(found.values())


def _impaired_since(item: Mapping[str, Any]) -> float | None:
    """Since when a status check fails; 0 where EC2 says that it does, and not since when."""
    bad = [
        check
        for key in ("InstanceStatus", "SystemStatus")
        if (check := item.get(key, {})).get("Status") == "impaired"
    ]
    since = [
        _epoch(detail.get("ImpairedSince")) for check in bad for detail in check.get("Details", ())
    ]
    return min((moment for moment in since if moment), default=0.0) if bad else None


@functools.lru_cache(maxsize=256)
def _expanded(hostlist: str) -> tuple[NodeName, ...]:
    """All machines of a launch carry the same hostlist: 500 of them would expand it 500 times."""
    return names.expand(hostlist)


def _epoch(value: object) -> float:
    return value.timestamp() if isinstance(value, datetime) else 0.0


def _ended_at(described: Mapping[str, Any]) -> float | None:
    """EC2 tells when a machine ended only inside a sentence."""
    found = _ENDED_AT.search(described.get("StateTransitionReason", "") or "")
    if found is None:
        return None
    return datetime.fromisoformat(found.group(1)).replace(tzinfo=UTC).timestamp()
