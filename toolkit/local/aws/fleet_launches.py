"""The launches that a CreateFleet call means: one for each market and override.

The fleet is filled by them, and the caller's rights are judged by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toolkit.local.aws import create_instances
from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.launch_request import ON_DEMAND, SPOT, Launch, launch_of, merge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.local.aws.run_instances import Compute

TAGGED: Final = ("instance", "volume", "network-interface")
"""What a launch creates and a fleet's tags may be for, beside the fleet itself."""


@dataclass(frozen=True, slots=True)
class FleetLaunch:
    """The launch of one override on one market, before an instance of it exists."""

    launch: Launch
    params: Mapping[str, Any]  # of the call and its template, with what `launch` leaves out
    version: Any  # moto's version of the launch template
    override: Mapping[str, Any]


def capacities(params: Mapping[str, Any]) -> dict[str, int]:
    """Return the capacity that a fleet asks for on each market.

    A market without any is left out. Refuses a fleet of nothing.
    """
    target = params.get("TargetCapacitySpecification") or {}
    total = int(target.get("TotalTargetCapacity") or 0)
    if total < 1:
        raise ec2_error("InvalidParameterValue", "TotalTargetCapacity must be at least 1")
    spot = int(target.get("SpotTargetCapacity") or 0)
    on_demand = int(target.get("OnDemandTargetCapacity") or 0)
    remaining = max(0, total - spot - on_demand)
    default_market = target.get("DefaultTargetCapacityType") or ON_DEMAND
    asked = {
        SPOT: spot + (remaining if default_market == SPOT else 0),
        ON_DEMAND: on_demand + (remaining if default_market == ON_DEMAND else 0),
    }
    return {market: capacity for market, capacity in asked.items() if capacity > 0}


def fleet_launches(
    compute: Compute, backend: Any, params: Mapping[str, Any], market: str
) -> Iterator[FleetLaunch]:
    """Yield the launch of each override, in the call's order."""
    tags = [item for item in params.get("TagSpecifications") or () if _is_launched(item)]
    for config in params.get("LaunchTemplateConfigs") or ():
        reference = config.get("LaunchTemplateSpecification") or {}
        version = compute.template(backend.region_name, reference)
        for override in config.get("Overrides") or [{}]:
            merged = merge(_call(override, tags, market), _data(version))
            launch = launch_of(merged, template=(version.template.id, version.number))
            subnet_id = override.get("SubnetId") or launch.subnet_id
            zone = override.get("AvailabilityZone") or launch.zone
            placed = launch.with_place(subnet_id=subnet_id, zone=zone)
            yield FleetLaunch(create_instances.place(backend, placed), merged, version, override)


def _is_launched(specification: Mapping[str, Any]) -> bool:
    return specification.get("ResourceType") in TAGGED


def _data(version: Any) -> dict[str, Any]:
    """Return a template's parameters but the market, which is the fleet's matter."""
    return {key: value for key, value in version.data.items() if key != "InstanceMarketOptions"}


def _call(
    override: Mapping[str, Any], tags: list[Mapping[str, Any]], market: str
) -> dict[str, Any]:
    """Return what an override says, as RunInstances would be told."""
    call = {
        key: override[key] for key in ("InstanceType", "ImageId", "Placement") if key in override
    }
    if market == SPOT:
        options = {"MaxPrice": override["MaxPrice"]} if override.get("MaxPrice") else {}
        call["InstanceMarketOptions"] = {"MarketType": SPOT, "SpotOptions": options}
    return {**call, "TagSpecifications": tags}
