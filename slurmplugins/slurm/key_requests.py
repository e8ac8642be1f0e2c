"""The rotation of Slurm's key, as files on the shared filesystem. They hold no key.

    /shared/.toolkit/slurm-key/wanted.json       the head: which keys every daemon should have
    /shared/.toolkit/slurm-key/confirmed.json    the head: which keys every daemon had at last
    /shared/.toolkit/slurm-key/node.gpu-001.json a node's agent: which keys its slurmd has

The folder is root's, so no user can write to it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from slurmplugins.model import json_input
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

_WANTED, _CONFIRMED = "wanted.json", "confirmed.json"


def write_wanted(directory: Path, generation: str) -> None:
    """Tell all nodes which generation of keys they should have. Raises OSError."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    _write(directory / _WANTED, {"generation": generation})


def read_wanted(directory: Path) -> str:
    """Return the generation that nodes should have; empty before any rotation."""
    return str(_read(directory / _WANTED).get("generation", ""))


def write_confirmed(directory: Path, generation: str) -> None:
    """Note that head and nodes have this generation. Raises OSError."""
    _write(directory / _CONFIRMED, {"generation": generation})


def read_confirmed(directory: Path) -> str:
    """Return the generation that all had at last; empty before any rotation."""
    return str(_read(directory / _CONFIRMED).get("generation", ""))


def write_report(directory: Path, node: str, instance_id: str, generation: str) -> None:
    """Report the generation of a node's slurmd. Raises OSError. Safe to repeat."""
    value = {"generation": generation, "instance_id": instance_id}
    _write(directory / f"node.{node}.json", value)


def read_report(directory: Path, node: str) -> tuple[str, str]:
    """Return the generation and the instance of a node's report.

    Both are empty without one.
    """
    value = _read(directory / f"node.{node}.json")
    return str(value.get("generation", "")), str(value.get("instance_id", ""))


def _write(path: Path, value: dict[str, str]) -> None:
    write_atomically(path, json.dumps(value).encode(), mode=0o644)


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json_input.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
