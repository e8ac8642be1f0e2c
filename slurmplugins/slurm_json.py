"""What Slurm's data parsers write, whatever their version. Pure.

Each record is read by itself. One with a field that can't be what it should be is kept as
unreadable, by its name or number where that can be read, so that nothing is decided on it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model import UNREADABLE, Job, Node
from slurmplugins.safe_json import finite

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIGITS: Final = 20
"""Of a number written as text; Slurm's largest have as many."""

_INFINITE: Final = (float("inf"), float("-inf"))


def number(value: object) -> float | None:
    """A number, plain or as newer data parsers write it: {set, infinite, number}. None: unset, or
    no number.
    """
    with contextlib.suppress(ValueError):
        return stated(value)
    return None


def stated(value: object) -> float | None:
    """Read a number. None where it is unset or infinite; ValueError where it is odd."""
    if isinstance(value, dict):
        known = value.get("set", True) and not value.get("infinite")
        value = value.get("number") if known else None
    if isinstance(value, str):
        return float(digits(value))
    return None if value is None or value in _INFINITE else finite(value)


def count(value: object) -> int:
    """Read a whole number of zero and more, zero where it is unset. ValueError where it is odd."""
    found = stated(value) or 0.0
    if found < 0 or found != int(found):
        raise ValueError("not a count")
    return int(found)


def digits(text: str) -> int:
    """Read a number that is written as text. ValueError for any other text."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise ValueError("text in place of a number")
    return int(text)


def text(value: object) -> str:
    """Read a text, empty where it is unset. ValueError for what is none."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} in place of text")
    return value or ""


def flags(value: object) -> frozenset[str]:
    """States are a list in the JSON of 23.02 and later; as text they are joined by `+`, and a star
    after one says that the node does not answer. ValueError for what is neither.
    """
    words = value if isinstance(value, list) else None
    if words is None:
        words = text(value).replace("*", "+NOT_RESPONDING").replace(",", "+").split("+")
    return frozenset(text(word).upper() for word in words if word)


def node(item: object) -> Node:
    """Read a node; an unreadable one where a field is odd, without a name where that is."""
    record: Mapping[str, Any] = item if isinstance(item, dict) else {}
    name = record.get("name")
    name = name if isinstance(name, str) else ""
    odd = frozenset({UNREADABLE})
    try:
        return Node(
            name=name,
            flags=(flags(record.get("state")) if name else odd) or odd,
            reason=text(record.get("reason")),
            instance_id=text(record.get("instance_id")),
            address=text(record.get("address")),
        )
    except ValueError:
        return Node(name, odd)


def job(item: object) -> Job:
    """Read a job; an unreadable one where a field is odd, numbered 0 where its number is."""
    record: Mapping[str, Any] = item if isinstance(item, dict) else {}
    try:
        return Job(
            id=count(record.get("job_id")),
            flags=flags(record.get("job_state")),
            nodes=text(record.get("nodes")),
            restarts=count(record.get("restart_cnt")),
            admin_comment=text(record.get("admin_comment")),
            submitted_at=stated(record.get("submit_time")) or 0.0,
        )
    except ValueError:
        found = number(record.get("job_id")) or 0.0
        return Job(int(found), frozenset({UNREADABLE}))
