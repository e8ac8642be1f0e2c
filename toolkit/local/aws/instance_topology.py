"""DescribeInstanceTopology, which moto does not have: three network nodes above each instance.

Instances of one placement group have the two upper ones in common. Others have the first in common
with their zone. Four instances share the lowest.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from moto.ec2.responses import EC2Response

from toolkit.local.aws.descriptions import answer, matching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolkit.local.aws.instance_tables import LocalInstance, Tables
    from toolkit.local.aws.moto_patches import Patches

PAGE = 100
_FILTERS: Mapping[str, Callable[[LocalInstance], Sequence[str]]] = {
    "availability-zone": lambda instance: (instance.pool.zone,),
    "instance-type": lambda instance: (str(instance.row.instance_type),),
}
RACK = 4
"""Instances below one of the lowest network nodes."""


def install(patches: Patches, tables: Tables) -> None:
    """Add the call to moto's EC2."""

    def describe_instance_topology(response: Any) -> Any:
        ids = response._get_param("InstanceIds", [])  # noqa: SLF001 - moto's way to read them
        positions = _positions(tables)
        instances = [
            instance
            for instance in tables.instances.values()
            if instance.state == "running" and (not ids or instance.id in ids)
        ]
        rows = [
            _row(instance, positions[instance.id])
            for instance in matching(response, instances, _FILTERS.get)
        ]
        return answer(response, "Instances", rows, size=PAGE)

    patches.replace(EC2Response, "describe_instance_topology", describe_instance_topology)


def _positions(tables: Tables) -> dict[str, int]:
    """Return each instance's position in its zone and group.

    An instance that ended keeps its own.
    """
    positions = {}
    counts: dict[tuple[str, str], int] = {}
    for instance in tables.instances.values():
        key = (instance.pool.zone, _group(instance))
        positions[instance.id] = counts[key] = counts.get(key, -1) + 1
    return positions


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
