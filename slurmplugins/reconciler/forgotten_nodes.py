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


LATE_SHARE: Final = 0.25
"""Share of ResumeTimeout. A healthy instance has registered by then, and time remains to do it
again."""

REQUEST_INTERVAL: Final = 60.0
"""Seconds between two requests to one node. slurmd finishes its current work before it reloads."""


@dataclass(frozen=True, slots=True)
class RegistrationRequests:
    """The times at which a node was asked to register again."""

    first: float
    """The first request."""
    last: float
    """The latest request."""


def is_forgotten(snapshot: Snapshot, state: NodeState) -> bool:
    """Return whether slurmctld seems to have forgotten the node's registration."""
    node = state.node
    if node.down or node.power_down_requested or node.powering_down:
        return False
    if node.powered_down:
        return node.busy and not node.power_up_pending
    late_age = snapshot.config.resume_timeout * LATE_SHARE
    return (
        node.powering_up
        and node.not_responding
        and any(snapshot.age(m) >= late_age for m in state.live_instances)
    )


def next_requests(snapshot: Snapshot, name: NodeName) -> RegistrationRequests:
    """Return the request times to remember for such a node.

    The node is asked now if `last` is now.
    """
    requests, now = snapshot.registration_requests.get(name), snapshot.moment
    if requests is None or requests.last > now:
        return RegistrationRequests(now, now)
    return (
        RegistrationRequests(requests.first, now)
        if now - requests.last >= REQUEST_INTERVAL
        else requests
    )
