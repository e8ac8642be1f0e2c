"""What Slurm's data parsers write, whatever their version. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurmplugins.model import Job, Node

if TYPE_CHECKING:
    from collections.abc import Mapping


def number(value: object) -> float | None:
    """A number, plain or as newer data parsers write it: {set, infinite, number}. None: unset."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    return float(value) if isinstance(value, int | float) else None


def node(item: Mapping[str, Any]) -> Node:
    return Node(
        name=str(item.get("name", "")),
        flags=_flags(item.get("state")),
        reason=str(item.get("reason") or ""),
        instance_id=str(item.get("instance_id") or ""),
        address=str(item.get("address") or ""),
    )


def job(item: Mapping[str, Any]) -> Job:
    return Job(
        id=int(item.get("job_id", 0)),
        flags=_flags(item.get("job_state")),
        nodes=str(item.get("nodes") or ""),
        restarts=int(number(item.get("restart_cnt")) or 0),
        admin_comment=str(item.get("admin_comment") or ""),
        submitted_at=number(item.get("submit_time")) or 0.0,
    )


def _flags(value: object) -> frozenset[str]:
    """States are a list in the JSON of 23.02 and later; as text they are joined by `+`, and a star
    after one says that the node does not answer.
    """
    text = value if isinstance(value, str) else ""
    words = value if isinstance(value, list) else text.replace("*", "+NOT_RESPONDING").split("+")
    return frozenset(str(word).upper() for word in words if word)
