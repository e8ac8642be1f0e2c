"""Refuses launches whose parameters contradict each other, as EC2 does. Pure.

Sources: EC2's API reference of RunInstances, CreateFleet, SpotMarketOptions, SpotOptionsRequest and
OnDemandOptionsRequest; "Behavior of Spot Instance interruptions"; "Launch instances using Capacity
Blocks". Where these name no code, the code is the nearest one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.launch_request import parse_bool

if TYPE_CHECKING:
    from collections.abc import Mapping

CAPACITY_BLOCK = "capacity-block"
STRATEGIES = {
    "SpotOptions": {
        "lowest-price",
        "diversified",
        "capacity-optimized",
        "capacity-optimized-prioritized",
        "price-capacity-optimized",
    },
    "OnDemandOptions": {"lowest-price", "prioritized"},
}


def check_run(params: Mapping[str, Any]) -> None:
    """Refuse a RunInstances whose market and reservation can't be had together."""
    options = params.get("InstanceMarketOptions") or {}
    market = options.get("MarketType")
    spot = options.get("SpotOptions") or {}
    if spot and market != "spot":
        raise _contradiction("SpotOptions are for the Spot market only.")
    keeps_instances = spot.get("InstanceInterruptionBehavior") in {"stop", "hibernate"}
    if keeps_instances != (spot.get("SpotInstanceType") == "persistent"):
        raise _contradiction("Exactly a persistent Spot request stops or hibernates instances.")
    specification = params.get("CapacityReservationSpecification") or {}
    target = specification.get("CapacityReservationTarget")
    if market == CAPACITY_BLOCK and not target:
        raise _contradiction("A capacity block is launched into by its reservation's id.")
    if market == "spot" and target:
        raise _contradiction("A Spot Instance can't target a capacity reservation.")


def check_fleet(params: Mapping[str, Any]) -> None:
    """Refuse options that an instant fleet of its market lacks."""
    for name, strategies in STRATEGIES.items():
        options = params.get(name) or {}
        strategy = options.get("AllocationStrategy")
        if strategy is not None and strategy not in strategies:
            message = f"{strategy} is not a valid allocation strategy of {name}."
            raise ec2_error("InvalidParameterValue", message)
        single_options = options.get("SingleAvailabilityZone"), options.get("SingleInstanceType")
        if options.get("MinTargetCapacity") and not any(map(parse_bool, single_options)):
            raise _contradiction(
                "MinTargetCapacity needs SingleAvailabilityZone or SingleInstanceType."
            )
        if options.get("InstanceInterruptionBehavior") in {"stop", "hibernate"}:
            raise _contradiction("Only a fleet of type maintain stops interrupted instances.")
    for config in params.get("LaunchTemplateConfigs") or ():
        _check_pools(config)


def _check_pools(config: Mapping[str, Any]) -> None:
    """Refuse a pool that is there twice.

    A pool is an instance type in a zone; a subnet stands for its zone here.
    """
    pools = [
        (item.get("InstanceType"), item.get("SubnetId"), item.get("AvailabilityZone"))
        for item in config.get("Overrides") or ()
    ]
    if len(set(pools)) < len(pools):
        message = "The fleet configuration contains duplicate instance pools."
        raise ec2_error("InvalidFleetConfig", message)


def _contradiction(message: str) -> Exception:
    return ec2_error("InvalidParameterCombination", message)
