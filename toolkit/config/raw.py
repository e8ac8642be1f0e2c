"""Reads the raw file; ignores values of the wrong shape, which the model reports."""

from __future__ import annotations

from typing import Any

Path = tuple[str | int, ...]
Finding = tuple[Path, str]


def mapping(value: Any, key: str) -> dict[str, Any]:
    """Return the mapping under a key, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def items(value: Any, key: str) -> list[Any]:
    """Return the list under a key, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []
