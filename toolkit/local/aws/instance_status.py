"""Faults that EC2 finds with instances, and its plans: status checks, events, spot notices."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.launch_request import SPOT
from toolkit.local.aws.paging import page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
        matching_instances = _filtered(response, instances, _status_values)
        rows = [_status(instance) for instance in matching_instances]
        return _answer(response, "InstanceStatuses", rows)

    def describe_spot_instance_requests(response: Any) -> Any:
        instances = [
            instance for instance in tables.instances.values() if instance.pool.market == SPOT
        ]
        matching_instances = _filtered(response, instances, _request_values)
        rows = [_request(instance) for instance in matching_instances]
        return _answer(response, "SpotInstanceRequests", rows)

    patches.replace(EC2Response, "describe_instance_status", describe_instance_status)
    patches.replace(EC2Response, "describe_spot_instance_requests", describe_spot_instance_requests)


def _filtered(
    response: Any,
    instances: Iterable[LocalInstance],
    values: Callable[[LocalInstance, str], Sequence[str] | None],
) -> list[LocalInstance]:
    """Return the instances that match every filter.

    An unknown filter is refused.
    """
    filters: Mapping[str, Sequence[str]] = response._filters_from_querystring()  # noqa: SLF001
    matching_instances = []
    for instance in instances:
        matches = True
        for name, expected_values in filters.items():
            actual_values = values(instance, name)
            if actual_values is None:
                raise ec2_error("InvalidParameterValue", f"The filter '{name}' is invalid")
            matches = matches and bool(set(actual_values) & set(expected_values))
        if matches:
            matching_instances.append(instance)
    return matching_instances


def _status_values(instance: LocalInstance, name: str) -> Sequence[str] | None:
    values: dict[str, Sequence[str]] = {
        "availability-zone": (instance.pool.zone,),
        "event.code": [code for code, _ in instance.events],
        "instance-state-name": (instance.state,),
        "instance-status.status": (_check(instance),),
        "system-status.status": ("ok",),
    }
    return values.get(name)


def _request_values(instance: LocalInstance, name: str) -> Sequence[str] | None:
    if name.startswith("tag:"):
        value = instance.request_tags.get(name.removeprefix("tag:"))
        return () if value is None else (value,)
    values: dict[str, Sequence[str]] = {
        "instance-id": (instance.id,),
        "spot-instance-request-id": (_request_id(instance),),
        "state": ("active" if instance.terminated_at is None else "closed",),
        "status-code": (_request_code(instance),),
    }
    return values.get(name)


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


def _answer(response: Any, field: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    page_rows, next_token = page(rows, response.params, size=PAGE)
    token = {"NextToken": next_token} if next_token else {}
    return ActionResult({field: page_rows, **token})


def _moment(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, UTC)
