"""Reads the raw file; ignores values of the wrong shape, which the model reports."""

from __future__ import annotations

from typing import Any

KeyPath = tuple[str | int, ...]
"""The keys and list indexes that lead to a value."""
Finding = tuple[KeyPath, str]
"""A key with a problem, and the message about it. The linters' `Finding` is another thing."""


def mapping(value: Any, key: str) -> dict[str, Any]:
    """Return the mapping under a key, or an empty one."""
    child = value.get(key) if isinstance(value, dict) else None
    return child if isinstance(child, dict) else {}


def items(value: Any, key: str) -> list[Any]:
    """Return the list under a key, or an empty one."""
    child = value.get(key) if isinstance(value, dict) else None
    return child if isinstance(child, list) else []
