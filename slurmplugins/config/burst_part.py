"""A part of burst.json with a reader of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurmplugins.errors import ConfigError
from slurmplugins.model import json_input

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path) -> object:
    """Read burst.json. Raises ConfigError."""
    try:
        return json_input.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError((f"{path}: can't be read: {error}",)) from error


def part_of(document: object, key: str) -> Any:
    """Return the part under a key, None without one. Raises ConfigError."""
    if not isinstance(document, dict):
        raise ConfigError(("burst.json: expected an object",))
    return document.get(key)
