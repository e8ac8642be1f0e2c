"""Nodes whose registration slurmctld has forgotten, and the request that their slurmd repeats it.

A slurmctld that is killed restores nodes as it last saved them, up to five minutes old: as
powering up, or as powered down, under a job that runs there. It asks neither for anything, and
hears of neither but by a registration. slurmd registers when it is reloaded, with the boot time
that it had, and its jobs go on (seen with Slurm 24.11).
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.cases import Case
    from slurmplugins.names import NodeName
    from slurmplugins.world import World

SHARE: Final = 0.25
"""Of ResumeTimeout: a healthy instance has registered by then, and time remains to do it again."""

EVERY: Final = 60.0
"""Between two requests to one node: slurmd waits for what it is about before it reloads."""


@dataclass(frozen=True, slots=True)
class Asked:
    """When a node was first and last asked to register again."""

    first: float
    last: float


def forgotten(world: World, case: Case) -> bool:
    """Say whether slurmctld seems to have forgotten that the node registered."""
    node = case.node
    if node.down or node.power_down_asked or node.powering_down:
        return False
    if node.powered_down:
        return node.busy and not node.waking
    late = world.config.resume_timeout * SHARE
    return node.powering_up and node.silent and any(world.age(m) >= late for m in case.live)


def update(world: World, name: NodeName) -> Asked:
    """Return what to remember of such a node; it is to be asked if `last` is now."""
    asked, now = world.asked.get(name), world.moment
    if asked is None or asked.last > now:
        return Asked(now, now)
    return Asked(asked.first, now) if now - asked.last >= EVERY else asked


def request(directory: Path, node: str, now: float) -> None:
    """Leave the request where the node's agent looks for it. Raises OSError."""
    value = json.dumps({"node": node, "at": now}).encode()
    write_atomically(_path(directory, node), value, mode=0o644)


def requested(directory: Path, node: str) -> str:
    """Return the request's content, empty without one."""
    try:
        return _path(directory, node).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def forget(directory: Path, node: str) -> None:
    """Remove the request; one that can't be removed is known by its content."""
    with contextlib.suppress(OSError):
        _path(directory, node).unlink()


def _path(directory: Path, node: str) -> Path:
    return directory / f"register.{node}.json"
