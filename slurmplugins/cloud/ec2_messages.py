"""From a LaunchRequest to the arguments of EC2's calls, and from answers to Instances. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.cloud import error_codes, tags
from slurmplugins.model.instance import (
    ROLE_COMPUTE,
    Instance,
    InstanceHealth,
    InstanceState,
    ScheduledEvent,
)
from slurmplugins.model.launch import Refusal
from slurmplugins.model.offering import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

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
"""Filters of DescribeInstanceStatus, a call each: within one call they would all have to match."""

MARKED: Final = "marked-for-termination"
"""The status of a spot request whose machine is being taken back."""

_STATES: Final = frozenset(InstanceState) - {InstanceState.UNCLEAR}

_OVER: Final = ("[Completed]", "[Canceled]")
"""How EC2 marks an event that is done with; it goes on listing it for a week."""

_ENDED_AT: Final = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def run_instances(request: LaunchRequest) -> dict[str, Any]:
    """The keyword arguments of boto3's run_instances for this request."""
    offering = request.offering
    arguments: dict[str, Any] = {
        "LaunchTemplate": _template(request),
        "InstanceType": offering.type,
        "MinCount": request.at_least,
        "MaxCount": len(request.nodes),
        "ClientToken": client_token(request.attempt),
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tag_list(request)} for kind in _tagged(request)
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
    """The keyword arguments of boto3's create_fleet: every offering of the request will do."""
    count = len(request.nodes)
    spot = request.offering.lifecycle is Lifecycle.SPOT
    place = {"SubnetId": request.subnet} if request.subnet else {}
    options: dict[str, Any] = {
        # EC2 takes a minimum only for one zone or one type; a request is in one zone.
        "SingleAvailabilityZone": True,
        "MinTargetCapacity": request.at_least,
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
                    {"InstanceType": item.type, **place, **({} if spot else {"Priority": rank})}
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
    # $Latest: an updated stack makes a new version and leaves the default where it was.
    return {"LaunchTemplateName": request.launch_template, "Version": "$Latest"}


def _tagged(request: LaunchRequest) -> tuple[str, ...]:
    """Everything a launch makes: the head's role may only make what carries the cluster's tag."""
    made = ("instance", "volume", "network-interface")
    spot = request.offering.lifecycle is Lifecycle.SPOT
    return (*made, "spot-instances-request") if spot else made


def client_token(attempt: str) -> str:
    """EC2's idempotency token, at most 64 characters.

    From the attempt, never from the node's name: EC2 remembers a token for a day after its
    machines ended, and refuses what comes with it (IdempotentInstanceTerminated).
    """
    import hashlib

    return hashlib.sha256(attempt.encode()).hexdigest()


def tag_list(request: LaunchRequest) -> list[dict[str, str]]:
    values = {
        tags.NAME: f"{request.cluster}-{request.pool}",
        tags.CLUSTER: request.cluster,
        tags.ROLE: ROLE_COMPUTE,
        tags.POOL: request.pool,
        tags.PARTITION: request.partition,
        **tags.node_tags(request.nodes),
        tags.ATTEMPT: request.attempt,
        **tags.price_tags(request.offerings),
    }
    if request.others:
        values[tags.ORDER] = tags.PENDING
    return tag_pairs(values)


def tag_pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as EC2 takes them."""
    return [{"Key": key, "Value": value} for key, value in values.items()]


def refusals(request: LaunchRequest, errors: Iterable[Mapping[str, Any]]) -> tuple[Refusal, ...]:
    """A fleet's `Errors`, each with the offering it is about."""
    by_type = {item.type: item for item in request.offerings}
    found = []
    for item in errors:
        override = item.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        offering = by_type.get(override.get("InstanceType", ""), request.offering)
        error = error_codes.error(item.get("ErrorCode", ""), item.get("ErrorMessage", ""))
        found.append(Refusal(offering, error))
    return tuple(found)


def unlisted(request: LaunchRequest, instance_id: str, node: NodeName) -> Instance:
    """A machine of a fleet before EC2 describes it."""
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

    Of one that is there twice the later is the newer; but none that was over lives again.
    """
    found: dict[str, Instance] = {}
    for item in map(instance, (one for one in items if one.get("InstanceId"))):
        if item.id not in found or not found[item.id].state.over:
            found[item.id] = item
    return list(found.values())


def instance(described: Mapping[str, Any]) -> Instance:
    """One element of DescribeInstances or RunInstances."""
    tag = {item["Key"]: item["Value"] for item in described.get("Tags", ())}
    said = described.get("State", {}).get("Name", "")
    state = InstanceState(said) if said in _STATES else InstanceState.UNCLEAR
    spot = described.get("InstanceLifecycle") == "spot"
    kind = described.get("InstanceType", "")
    return Instance(
        id=described["InstanceId"],
        state=state,
        role=tag.get(tags.ROLE, ""),
        node=tags.node_of(tag, int(described.get("AmiLaunchIndex", 0)), described["InstanceId"]),
        pool=tag.get(tags.POOL, ""),
        partition=tag.get(tags.PARTITION, ""),
        attempt=tag.get(tags.ATTEMPT, ""),
        type=kind,
        zone=described.get("Placement", {}).get("AvailabilityZone", ""),
        lifecycle=Lifecycle.SPOT if spot else Lifecycle.ON_DEMAND,
        address=described.get("PrivateIpAddress", ""),
        price=tags.price_of(tag, kind),
        launched_at=_epoch(described.get("LaunchTime")),
        ended_at=_ended_at(described) if state.over else None,
        end_code=described.get("StateReason", {}).get("Code", "") if state.over else "",
        unclear=said if state is InstanceState.UNCLEAR else "",
    )


def health(
    statuses: Iterable[Mapping[str, Any]], requests: Iterable[Mapping[str, Any]]
) -> tuple[InstanceHealth, ...]:
    """Elements of DescribeInstanceStatus, and of DescribeSpotInstanceRequests."""
    found: dict[str, InstanceHealth] = {}
    for item in statuses:  # a machine with several troubles is in several answers, whole in each
        events = tuple(
            ScheduledEvent(event["Code"], _epoch(event.get("NotBefore")))
            for event in item.get("Events", ())
            if not str(event.get("Description", "")).startswith(_OVER)
        )
        id_, since = item["InstanceId"], _impaired_since(item)
        if events or since is not None:
            found[id_] = InstanceHealth(id_, since, events)
    for item in requests:
        id_ = item.get("InstanceId")
        if id_ and item.get("Status", {}).get("Code") == MARKED:
            found[id_] = replace(found.get(id_, InstanceHealth(id_)), notice=True)
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


def _epoch(moment: datetime | None) -> float:
    return 0.0 if moment is None else moment.timestamp()


def _ended_at(described: Mapping[str, Any]) -> float | None:
    """EC2 tells when a machine ended only inside a sentence."""
    found = _ENDED_AT.search(described.get("StateTransitionReason") or "")
    if found is None:
        return None
    from datetime import UTC, datetime

    return datetime.fromisoformat(found.group(1)).replace(tzinfo=UTC).timestamp()
