"""A launch as a line of the journal, whole, so that exactly the same request can be made again."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from slurmplugins.model import LaunchRequest, Lifecycle, Offering
from slurmplugins.names import NodeName

if TYPE_CHECKING:
    from collections.abc import Mapping


def to_record(request: LaunchRequest) -> dict[str, Any]:
    """For JSON. `attempt` and `nodes` are fields of it."""
    return asdict(request)


def from_record(record: Mapping[str, Any]) -> LaunchRequest:
    """KeyError or TypeError for what `to_record` has not written."""
    return LaunchRequest(
        attempt=record["attempt"],
        cluster=record["cluster"],
        pool=record["pool"],
        partition=record["partition"],
        launch_template=record["launch_template"],
        subnet=record["subnet"],
        offering=_offering(record["offering"]),
        nodes=tuple(map(NodeName, record["nodes"])),
        others=tuple(map(_offering, record["others"])),
        least=record["least"],
    )


def _offering(value: Mapping[str, Any]) -> Offering:
    return Offering(**{**value, "lifecycle": Lifecycle(value["lifecycle"])})
