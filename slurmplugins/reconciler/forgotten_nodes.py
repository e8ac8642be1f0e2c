"""Nodes whose registration slurmctld has forgotten, and the request that their slurmd repeats it.

A slurmctld that is killed restores nodes as it last saved them, up to five minutes old: as
powering up, or as powered down, under a job that runs there. It asks neither for anything, and
hears of neither but by a registration. slurmd registers when it is reloaded, with the boot time
that it had, and its jobs go on (seen with Slurm 24.11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.reconciler.node_state import NodeState
    from slurmplugins.reconciler.snapshot import Snapshot


SHARE: Final = 0.25
"""Of ResumeTimeout: a healthy instance has registered by then, and time remains to do it again."""

EVERY: Final = 60.0
"""Between two requests to one node: slurmd waits for what it is about before it reloads."""


@dataclass(frozen=True, slots=True)
class Asked:
    """When a node was first and last asked to register again."""

    first: float
    last: float


def forgotten(world: Snapshot, case: NodeState) -> bool:
    """Say whether slurmctld seems to have forgotten that the node registered."""
    node = case.node
    if node.down or node.power_down_asked or node.powering_down:
        return False
    if node.powered_down:
        return node.busy and not node.waking
    late = world.config.resume_timeout * SHARE
    return node.powering_up and node.silent and any(world.age(m) >= late for m in case.live)


def update(world: Snapshot, name: NodeName) -> Asked:
    """Return what to remember of such a node; it is to be asked if `last` is now."""
    asked, now = world.asked.get(name), world.moment
    if asked is None or asked.last > now:
        return Asked(now, now)
    return Asked(asked.first, now) if now - asked.last >= EVERY else asked
