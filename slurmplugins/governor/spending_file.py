"""The file of what jobs that burst have cost: `governor.json` on the head's data volume."""

from __future__ import annotations

import json
from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import StateError
from slurmplugins.governor.spending import Burst, CloudAttempt, Refusal, Spending
from slurmplugins.model.json_input import finite, loads
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


FILE: Final = "governor.json"
LOCK: Final = "governor.lock"
"""Held during a pass and a restore."""


def load(state: Path) -> Spending:
    """Read the file; nothing is spent where it does not exist.

    Raises StateError for a damaged file: it may hide what was spent.
    """
    path = state / FILE
    try:
        data = loads(path.read_bytes())
    except FileNotFoundError:
        return Spending()
    except (OSError, ValueError) as error:
        raise StateError(f"{path} can't be read, so no job may burst: {error}") from error
    try:
        return from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise StateError(f"{path} is damaged, so no job may burst: {error}") from error


def save(state: Path, spending: Spending) -> None:
    """Write the file. Raises StateError."""
    try:
        text = json.dumps(to_json(spending), default=str)
        write_atomically(state / FILE, text.encode(), mode=0o640)
    except OSError as error:
        raise StateError(f"{state / FILE} can't be written: {error}") from error


def to_json(spending: Spending) -> dict[str, Any]:
    """Return the file's content; amounts become text."""
    return asdict(spending)


def from_json(data: Mapping[str, Any]) -> Spending:
    """Read the file's content. Raises KeyError, TypeError, ValueError or ArithmeticError."""
    return Spending(
        bursts={int(key): Burst(**_amounts(item)) for key, item in data["bursts"].items()},
        attempts={str(key): CloudAttempt(**_amounts(i)) for key, i in data["attempts"].items()},
        refusals={int(key): Refusal(**item) for key, item in data["refusals"].items()},
        expected={int(key): finite(at) for key, at in data["expected"].items()},
        notes={int(key): str(text) for key, text in data["notes"].items()},
    )


def _amounts(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: Decimal(value) if key in {"usd", "usd_per_hour"} else value
        for key, value in item.items()
    }
