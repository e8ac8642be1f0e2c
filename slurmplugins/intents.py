"""A launch as a line of the journal, whole, so that exactly the same request can be made again."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model import LaunchRequest, Lifecycle, Offering
from slurmplugins.names import NodeName

if TYPE_CHECKING:
    from collections.abc import Mapping

_REQUEST: Final = frozenset(item.name for item in fields(LaunchRequest))
_OFFERING: Final = frozenset(item.name for item in fields(Offering))
_OF_THE_LINE: Final = frozenset({"at", "boot", "jobs", "kind", "run", "steady", "up"})


def to_record(request: LaunchRequest) -> dict[str, Any]:
    """For JSON. `attempt` and `nodes` are fields of it."""
    return asdict(request)


def askable(record: Mapping[str, Any]) -> bool:
    """Tell whether the line says no more than a request does. A newer version may have said more,
    and asking again with the same token would then be another call.
    """
    offerings = [record["offering"], *record["others"]]
    more = record.keys() - _REQUEST - _OF_THE_LINE
    return not more and all(item.keys() <= _OFFERING for item in offerings)


def from_record(record: Mapping[str, Any]) -> LaunchRequest:
    """What is not known is left out. KeyError, TypeError, ValueError or AttributeError for what
    `to_record` has not written.
    """
    words = ("attempt", "cluster", "pool", "partition", "launch_template", "subnet")
    if not all(isinstance(text, str) for text in (*record["nodes"], *map(record.get, words))):
        raise TypeError("not the names of a launch")
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
        least=int(record["least"]),
    )


def _offering(value: Mapping[str, Any]) -> Offering:
    known = {key: item for key, item in value.items() if key in _OFFERING}
    return Offering(**{**known, "lifecycle": Lifecycle(value["lifecycle"])})
