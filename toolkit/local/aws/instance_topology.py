"""DescribeInstanceTopology, which moto does not have: three network nodes above each instance.

Instances of one placement group have the two upper ones in common. Others have the first in common
with their zone. Four instances share the lowest.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.paging import page

if TYPE_CHECKING:
    from toolkit.local.aws.instance_tables import LocalInstance, Tables
    from toolkit.local.aws.moto_patches import Patches

PAGE = 100
FILTERS = ("availability-zone", "instance-type", "zone-id")
RACK = 4
"""Instances below one of the lowest network nodes."""


def install(patches: Patches, tables: Tables) -> None:
    """Add the call to moto's EC2."""

    def describe_instance_topology(response: Any) -> Any:
        filters = response._filters_from_querystring()  # noqa: SLF001 - moto's way to read them
        for name in filters.keys() - {*FILTERS}:
            raise ec2_error("InvalidParameterValue", f"The filter '{name}' is invalid")
        ids = response._get_param("InstanceIds", [])  # noqa: SLF001 - the same
        rows = [
            row
            for row in _rows(tables)
            if (not ids or row["InstanceId"] in ids)
            and row["InstanceType"] in filters.get("instance-type", [row["InstanceType"]])
            and row["AvailabilityZone"]
            in filters.get("availability-zone", [row["AvailabilityZone"]])
        ]
        page_rows, token = page(rows, response.params, size=PAGE)
        return ActionResult({"Instances": page_rows, **({"NextToken": token} if token else {})})

    patches.replace(EC2Response, "describe_instance_topology", describe_instance_topology)


def _rows(tables: Tables) -> list[dict[str, Any]]:
    counts: dict[tuple[str, str], int] = {}
    rows = []
    for instance in tables.instances.values():
        key = (instance.pool.zone, _group(instance))
        position = counts[key] = counts.get(key, -1) + 1
        if instance.state == "running":
            rows.append(_row(instance, position))
    return rows


def _row(instance: LocalInstance, position: int) -> dict[str, Any]:
    zone, group = instance.pool.zone, _group(instance)
    second = (zone, group) if group else (zone, str(position // RACK))
    return {
        "InstanceId": instance.id,
        "InstanceType": str(instance.row.instance_type),
        "AvailabilityZone": zone,
        "NetworkNodes": [
            _network_node(zone),
            _network_node(*second),
            _network_node(*second, "rack", str(position // RACK)),
        ],
        **({"GroupName": group} if group else {}),
    }


def _group(instance: LocalInstance) -> str:
    """Return the instance's placement group, "" without one."""
    return str(instance.row.placement.group_name or "")


def _network_node(*parts: str) -> str:
    return f"nn-{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:17]}"
