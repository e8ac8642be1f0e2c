"""Find nodes whose registration slurmctld has forgotten, and have their slurmd repeat it.

A slurmctld that is killed restores nodes as it last saved them, up to five minutes old. A node may
come back as powering up, or as powered down under a job that runs there. slurmctld asks such a node
for nothing, and learns of it only by a registration. slurmd registers when it is reloaded, with the
boot time that it had, and its jobs go on (seen with Slurm 24.11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.reconciler.node_state import NodeState
    from slurmplugins.reconciler.snapshot import Snapshot


SHARE: Final = 0.25
"""Share of ResumeTimeout. A healthy instance has registered by then, and time remains to do it
again."""

EVERY: Final = 60.0
"""Seconds between two requests to one node. slurmd finishes its current work before it reloads."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The times at which a node was asked to register again."""

    first: float
    """The first request."""
    last: float
    """The latest request."""


def forgotten(world: Snapshot, case: NodeState) -> bool:
    """Return whether slurmctld seems to have forgotten the node's registration."""
    node = case.node
    if node.down or node.power_down_asked or node.powering_down:
        return False
    if node.powered_down:
        return node.busy and not node.waking
    late = world.config.resume_timeout * SHARE
    return node.powering_up and node.silent and any(world.age(m) >= late for m in case.live)


def update(world: Snapshot, name: NodeName) -> Asked:
    """Return the request times to remember for such a node.

    The node is asked now if `last` is now.
    """
    asked, now = world.asked.get(name), world.moment
    if asked is None or asked.last > now:
        return Asked(now, now)
    return Asked(asked.first, now) if now - asked.last >= EVERY else asked
