"""Faults that EC2 finds with instances, and its plans: status checks, events, spot notices."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moto.ec2.responses import EC2Response

from toolkit.local.aws.descriptions import answer, matching
from toolkit.local.aws.launch_request import SPOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolkit.local.aws.instance_tables import LocalInstance, Tables
    from toolkit.local.aws.moto_patches import Patches

PAGE = 1000
_MARKED = "marked-for-termination"


def install(patches: Patches, tables: Tables) -> None:
    """Put this in place of moto's answers, which know of no trouble."""

    def describe_instance_status(response: Any) -> Any:
        ids = response._get_param("InstanceIds", [])  # noqa: SLF001 - moto's way to read them
        include_all = response._get_bool_param("IncludeAllInstances", False)  # noqa: SLF001
        instances = [
            instance
            for instance in tables.instances.values()
            if (not ids or instance.id in ids) and (include_all or instance.state == "running")
        ]
        matching_instances = matching(response, instances, _STATUS_FILTERS.get)
        rows = [_status(instance) for instance in matching_instances]
        return answer(response, "InstanceStatuses", rows, size=PAGE)

    def describe_spot_instance_requests(response: Any) -> Any:
        instances = [
            instance for instance in tables.instances.values() if instance.pool.market == SPOT
        ]
        matching_instances = matching(response, instances, _request_values)
        rows = [_request(instance) for instance in matching_instances]
        return answer(response, "SpotInstanceRequests", rows, size=PAGE)

    patches.replace(EC2Response, "describe_instance_status", describe_instance_status)
    patches.replace(EC2Response, "describe_spot_instance_requests", describe_spot_instance_requests)


def _request_values(name: str) -> Callable[[LocalInstance], Sequence[str]] | None:
    if not name.startswith("tag:"):
        return _REQUEST_FILTERS.get(name)
    key = name.removeprefix("tag:")
    return lambda instance: (instance.request_tags[key],) if key in instance.request_tags else ()


def _status(instance: LocalInstance) -> dict[str, Any]:
    check = _check(instance)
    detail: dict[str, Any] = {"Name": "reachability", "Status": "passed"}
    if instance.impaired_since is not None:
        detail |= {"Status": "failed", "ImpairedSince": _moment(instance.impaired_since)}
    return {
        "InstanceId": instance.id,
        "AvailabilityZone": instance.pool.zone,
        "InstanceState": {"Code": instance.row.state_code, "Name": instance.state},
        "InstanceStatus": {"Status": check, "Details": [detail]},
        "SystemStatus": {
            "Status": "ok",
            "Details": [{"Name": "reachability", "Status": "passed"}],
        },
        "Events": [
            {
                "InstanceEventId": f"instance-event-{instance.id[2:]}",
                "Code": code,
                "Description": f"The instance is scheduled for {code}",
                "NotBefore": _moment(start_time),
            }
            for code, start_time in instance.events
        ],
    }


def _request(instance: LocalInstance) -> dict[str, Any]:
    return {
        "SpotInstanceRequestId": _request_id(instance),
        "InstanceId": instance.id,
        "State": "active" if instance.terminated_at is None else "closed",
        "Status": {"Code": _request_code(instance)},
        "Tags": [{"Key": key, "Value": value} for key, value in instance.request_tags.items()],
        "Type": "one-time",
    }


def _request_id(instance: LocalInstance) -> str:
    return str(instance.row.spot_instance_request_id or "")


def _request_code(instance: LocalInstance) -> str:
    if instance.terminated_at is not None:
        return "instance-terminated-by-user"
    return _MARKED if instance.notice is not None else "fulfilled"


def _check(instance: LocalInstance) -> str:
    return "ok" if instance.impaired_since is None else "impaired"


def _moment(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, UTC)


_STATUS_FILTERS: Mapping[str, Callable[[LocalInstance], Sequence[str]]] = {
    "availability-zone": lambda instance: (instance.pool.zone,),
    "event.code": lambda instance: [code for code, _ in instance.events],
    "instance-state-name": lambda instance: (instance.state,),
    "instance-status.status": lambda instance: (_check(instance),),
    "system-status.status": lambda _: ("ok",),
}
_REQUEST_FILTERS: Mapping[str, Callable[[LocalInstance], Sequence[str]]] = {
    "instance-id": lambda instance: (instance.id,),
    "spot-instance-request-id": lambda instance: (_request_id(instance),),
    "state": lambda instance: ("active" if instance.terminated_at is None else "closed",),
    "status-code": lambda instance: (_request_code(instance),),
}
