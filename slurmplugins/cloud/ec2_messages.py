"""EC2's messages: arguments of calls from a LaunchRequest, values from answers. No I/O."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.cloud import error_codes, tags
from slurmplugins.model.instance import (
    ROLE_COMPUTE,
    Instance,
    InstanceHealth,
    InstanceState,
    Lifecycle,
    ScheduledEvent,
)
from slurmplugins.model.launch import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.launch import LaunchRequest

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
"""Filters of DescribeInstanceStatus, one call each: in one call all of them would have to match."""

MARKED_FOR_TERMINATION: Final = "marked-for-termination"
"""The status of a spot request whose instance EC2 is taking back."""

_STATES: Final = frozenset(InstanceState) - {InstanceState.UNCLEAR}

_PAST_EVENT: Final = ("[Completed]", "[Canceled]")
"""EC2 begins the description of a past event like this, and lists it for another week."""

_ENDED_AT: Final = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def run_instances(request: LaunchRequest) -> dict[str, Any]:
    """Return the arguments of run_instances for this request."""
    offering = request.offering
    arguments: dict[str, Any] = {
        "LaunchTemplate": _template(request),
        "InstanceType": offering.type,
        "MinCount": request.min_instances,
        "MaxCount": len(request.nodes),
        "ClientToken": client_token(request.attempt),
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tag_list(request)}
            for kind in _created_resources(request)
        ],
    }
    if request.subnet:
        arguments["SubnetId"] = request.subnet
    if offering.lifecycle is Lifecycle.SPOT:
        options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
        arguments["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
    if offering.block:
        arguments["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    if offering.reservation:
        arguments["CapacityReservationSpecification"] = {
            "CapacityReservationTarget": {"CapacityReservationId": offering.reservation}
        }
    return arguments


def create_fleet(request: LaunchRequest) -> dict[str, Any]:
    """Return the arguments of create_fleet.

    EC2 may use any offering of the request.
    """
    count = len(request.nodes)
    spot = request.offering.lifecycle is Lifecycle.SPOT
    subnet = {"SubnetId": request.subnet} if request.subnet else {}
    options: dict[str, Any] = {
        # EC2 accepts a minimum only for one zone or one type. A request is in one zone.
        "SingleAvailabilityZone": True,
        "MinTargetCapacity": request.min_instances,
        "AllocationStrategy": "price-capacity-optimized" if spot else "prioritized",
    }
    if spot:
        options["InstanceInterruptionBehavior"] = "terminate"
    return {
        "Type": "instant",
        "ClientToken": client_token(request.attempt),
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": _template(request),
                "Overrides": [
                    {"InstanceType": item.type, **subnet, **({} if spot else {"Priority": rank})}
                    for rank, item in enumerate(request.offerings)
                ],
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": "spot" if spot else "on-demand",
        },
        "SpotOptions" if spot else "OnDemandOptions": options,
        # Volumes and interfaces of a fleet take their tags from the launch template.
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tag_list(request)} for kind in ("fleet", "instance")
        ],
    }


def _template(request: LaunchRequest) -> dict[str, str]:
    # $Latest: an updated stack makes a new version and does not change the default.
    return {"LaunchTemplateName": request.launch_template, "Version": "$Latest"}


def _created_resources(request: LaunchRequest) -> tuple[str, ...]:
    """Return all kinds of resources that a launch creates.

    The head's role may only create resources with the cluster's tag.
    """
    resources = ("instance", "volume", "network-interface")
    spot = request.offering.lifecycle is Lifecycle.SPOT
    return (*resources, "spot-instances-request") if spot else resources


def client_token(launch_id: str) -> str:
    """Return EC2's idempotency token, at most 64 characters.

    It is made from the attempt, never from the node's name. EC2 remembers a token for a day after
    its instances were terminated. It then refuses each call with that token
    (IdempotentInstanceTerminated).
    """
    return hashlib.sha256(launch_id.encode()).hexdigest()


def tag_list(request: LaunchRequest) -> list[dict[str, str]]:
    values = {
        tags.NAME: f"{request.cluster}-{request.pool}",
        tags.CLUSTER: request.cluster,
        tags.ROLE: ROLE_COMPUTE,
        tags.POOL: request.pool,
        tags.PARTITION: request.partition,
        **tags.node_tags(request.nodes),
        tags.LAUNCH_ID: request.attempt,
        **tags.price_tags(request.offerings),
    }
    if request.others:
        values[tags.ORDER] = tags.PENDING
    return tag_pairs(values)


def tag_pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in EC2's form."""
    return [{"Key": key, "Value": value} for key, value in values.items()]


def refusals(request: LaunchRequest, errors: Iterable[Mapping[str, Any]]) -> tuple[Refusal, ...]:
    """Return a fleet's `Errors`, each with its offering."""
    by_type = {item.type: item for item in request.offerings}
    results = []
    for item in errors:
        override = item.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        offering = by_type.get(override.get("InstanceType", ""), request.offering)
        error = error_codes.error(item.get("ErrorCode", ""), item.get("ErrorMessage", ""))
        results.append(Refusal(offering, error))
    return tuple(results)


def undescribed_instance(request: LaunchRequest, instance_id: str, node: NodeName) -> Instance:
    """Return a fleet's instance that EC2 does not describe yet."""
    return Instance(
        id=instance_id,
        state=InstanceState.PENDING,
        role=ROLE_COMPUTE,
        node=node,
        pool=request.pool,
        partition=request.partition,
        attempt=request.attempt,
        type="",
        zone=request.offering.zone,
        lifecycle=request.offering.lifecycle,
        address="",
        price="",
        launched_at=0.0,
    )


def instances(items: Iterable[Mapping[str, Any]]) -> list[Instance]:
    """Read elements of DescribeInstances or RunInstances, each instance once.

    Of two elements for one instance the later is newer. But a terminated instance stays terminated.
    """
    instances_by_id: dict[str, Instance] = {}
    for item in map(instance, (element for element in items if element.get("InstanceId"))):
        if item.id not in instances_by_id or not instances_by_id[item.id].state.terminated:
            instances_by_id[item.id] = item
    return list(instances_by_id.values())


def instance(description: Mapping[str, Any]) -> Instance:
    """Read one element of DescribeInstances or RunInstances."""
    tag_values = {item["Key"]: item["Value"] for item in description.get("Tags", ())}
    state_name = description.get("State", {}).get("Name", "")
    state = InstanceState(state_name) if state_name in _STATES else InstanceState.UNCLEAR
    spot = description.get("InstanceLifecycle") == "spot"
    instance_type = description.get("InstanceType", "")
    return Instance(
        id=description["InstanceId"],
        state=state,
        role=tag_values.get(tags.ROLE, ""),
        node=tags.node_of(
            tag_values, int(description.get("AmiLaunchIndex", 0)), description["InstanceId"]
        ),
        pool=tag_values.get(tags.POOL, ""),
        partition=tag_values.get(tags.PARTITION, ""),
        attempt=tag_values.get(tags.LAUNCH_ID, ""),
        type=instance_type,
        zone=description.get("Placement", {}).get("AvailabilityZone", ""),
        lifecycle=Lifecycle.SPOT if spot else Lifecycle.ON_DEMAND,
        address=description.get("PrivateIpAddress", ""),
        price=tags.price_of(tag_values, instance_type),
        launched_at=_epoch(description.get("LaunchTime")),
        ended_at=ended_at(description) if state.terminated else None,
        stopped_at=ended_at(description) if state.stopped else None,
        end_code=description.get("StateReason", {}).get("Code", "") if state.terminated else "",
        unclear=state_name if state is InstanceState.UNCLEAR else "",
    )


def health(
    statuses: Iterable[Mapping[str, Any]], requests: Iterable[Mapping[str, Any]]
) -> tuple[InstanceHealth, ...]:
    """Read elements of DescribeInstanceStatus and DescribeSpotInstanceRequests."""
    health_by_id: dict[str, InstanceHealth] = {}
    for item in statuses:  # with several problems it is in several answers, complete in each
        events = tuple(
            ScheduledEvent(event["Code"], _epoch(event.get("NotBefore")))
            for event in item.get("Events", ())
            if not str(event.get("Description", "")).startswith(_PAST_EVENT)
        )
        id_, since = item["InstanceId"], _impaired_since(item)
        if events or since is not None:
            health_by_id[id_] = InstanceHealth(id_, since, events)
    for item in requests:
        id_ = item.get("InstanceId")
        if id_ and item.get("Status", {}).get("Code") == MARKED_FOR_TERMINATION:
            health_by_id[id_] = replace(health_by_id.get(id_, InstanceHealth(id_)), notice=True)
    return tuple(health_by_id.values())


def _impaired_since(item: Mapping[str, Any]) -> float | None:
    """Return the time since which a status check fails, else None.

    0 means that EC2 does not tell the time.
    """
    impaired_checks = [
        check
        for key in ("InstanceStatus", "SystemStatus")
        if (check := item.get(key, {})).get("Status") == "impaired"
    ]
    times = [
        _epoch(detail.get("ImpairedSince"))
        for check in impaired_checks
        for detail in check.get("Details", ())
    ]
    return min((moment for moment in times if moment), default=0.0) if impaired_checks else None


def _epoch(moment: datetime | None) -> float:
    return 0.0 if moment is None else moment.timestamp()


def ended_at(description: Mapping[str, Any]) -> float | None:
    """Return the end or the stop, which EC2 tells inside a sentence."""
    match = _ENDED_AT.search(description.get("StateTransitionReason") or "")
    if match is None:
        return None
    return datetime.fromisoformat(match.group(1)).replace(tzinfo=UTC).timestamp()
