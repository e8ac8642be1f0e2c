"""Reading the raw file: what has the wrong shape is passed over, since the model reports it."""

from __future__ import annotations

from typing import Any

Path = tuple[str | int, ...]
Finding = tuple[Path, str]


def mapping(value: Any, key: str) -> dict[str, Any]:
    """The mapping under a key, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def items(value: Any, key: str) -> list[Any]:
    """The list under a key, or an empty one."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []
