"""Faults that EC2 finds with instances, and its plans: status checks, events, spot notices."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response

from toolkit.local.aws.aws_errors import refused
from toolkit.local.aws.launch_request import SPOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from toolkit.local.aws.instance_tables import Life, Tables
    from toolkit.local.aws.moto_patches import Patches

PAGE = 1000
_MARKED = "marked-for-termination"


def install(patches: Patches, tables: Tables) -> None:
    """Put this in place of moto's answers, which know of no trouble."""

    def describe_instance_status(response: Any) -> Any:
        ids = response._get_param("InstanceIds", [])  # noqa: SLF001 - moto's way to read them
        everything = response._get_bool_param("IncludeAllInstances", False)  # noqa: SLF001
        lives = [
            life
            for life in tables.lives.values()
            if (not ids or life.id in ids) and (everything or life.state == "running")
        ]
        found = _filtered(response, lives, _status_values)
        page, more = _page(response, [_status(life) for life in found])
        return ActionResult({"InstanceStatuses": page, **more})

    def describe_spot_instance_requests(response: Any) -> Any:
        lives = [life for life in tables.lives.values() if life.pool.market == SPOT]
        found = _filtered(response, lives, _request_values)
        page, more = _page(response, [_request(life) for life in found])
        return ActionResult({"SpotInstanceRequests": page, **more})

    patches.replace(EC2Response, "describe_instance_status", describe_instance_status)
    patches.replace(EC2Response, "describe_spot_instance_requests", describe_spot_instance_requests)


def _filtered(
    response: Any, lives: Iterable[Life], values: Callable[[Life, str], Sequence[str] | None]
) -> list[Life]:
    """Return the instances that match every filter.

    An unknown filter is refused.
    """
    filters: Mapping[str, Sequence[str]] = response._filters_from_querystring()  # noqa: SLF001
    found = []
    for life in lives:
        matched = True
        for name, wanted in filters.items():
            have = values(life, name)
            if have is None:
                raise refused("InvalidParameterValue", f"The filter '{name}' is invalid")
            matched = matched and bool(set(have) & set(wanted))
        if matched:
            found.append(life)
    return found


def _status_values(life: Life, name: str) -> Sequence[str] | None:
    values: dict[str, Sequence[str]] = {
        "availability-zone": (life.pool.zone,),
        "event.code": [code for code, _ in life.events],
        "instance-state-name": (life.state,),
        "instance-status.status": (_check(life),),
        "system-status.status": ("ok",),
    }
    return values.get(name)


def _request_values(life: Life, name: str) -> Sequence[str] | None:
    if name.startswith("tag:"):
        value = life.request_tags.get(name.removeprefix("tag:"))
        return () if value is None else (value,)
    values: dict[str, Sequence[str]] = {
        "instance-id": (life.id,),
        "spot-instance-request-id": (_request_id(life),),
        "state": ("active" if life.ended is None else "closed",),
        "status-code": (_request_code(life),),
    }
    return values.get(name)


def _status(life: Life) -> dict[str, Any]:
    check = _check(life)
    detail: dict[str, Any] = {"Name": "reachability", "Status": "passed"}
    if life.impaired is not None:
        detail |= {"Status": "failed", "ImpairedSince": _moment(life.impaired)}
    return {
        "InstanceId": life.id,
        "AvailabilityZone": life.pool.zone,
        "InstanceState": {"Code": life.instance.state_code, "Name": life.state},
        "InstanceStatus": {"Status": check, "Details": [detail]},
        "SystemStatus": {
            "Status": "ok",
            "Details": [{"Name": "reachability", "Status": "passed"}],
        },
        "Events": [
            {
                "InstanceEventId": f"instance-event-{life.id[2:]}",
                "Code": code,
                "Description": f"The instance is scheduled for {code}",
                "NotBefore": _moment(when),
            }
            for code, when in life.events
        ],
    }


def _request(life: Life) -> dict[str, Any]:
    return {
        "SpotInstanceRequestId": _request_id(life),
        "InstanceId": life.id,
        "State": "active" if life.ended is None else "closed",
        "Status": {"Code": _request_code(life)},
        "Tags": [{"Key": key, "Value": value} for key, value in life.request_tags.items()],
        "Type": "one-time",
    }


def _request_id(life: Life) -> str:
    return str(life.instance.spot_instance_request_id or "")


def _request_code(life: Life) -> str:
    if life.ended is not None:
        return "instance-terminated-by-user"
    return _MARKED if life.notice is not None else "fulfilled"


def _check(life: Life) -> str:
    return "ok" if life.impaired is None else "impaired"


def _page(
    response: Any, found: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    first = int(response._get_param("NextToken") or 0)  # noqa: SLF001
    last = first + int(response._get_param("MaxResults") or PAGE)  # noqa: SLF001
    return found[first:last], ({"NextToken": str(last)} if last < len(found) else {})


def _moment(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, UTC)
