"""Find jobs to requeue although Slurm let them end, because they lost an instance.

Slurm requeues the jobs of a node that it knows to be gone. But the ranks on the other nodes notice
first. A script that ends with their error is a failed job, minutes before EC2 or Slurm reports the
loss. This module compares the job's end with the instances' ends. Pure: the pass does the requeue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.model import hostlist
from slurmplugins.model.node import REASON_PREFIX, EndedJob

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.reconciler.snapshot import Snapshot


DO_NOT_REQUEUE: Final = 93
"""Exit code of a training job that must not be requeued (toolkit.training.attempt.verdict)."""

BEFORE: Final = 150.0
"""Seconds that a job may end before its instance. A spot notice is two minutes."""

AFTER: Final = 120.0
"""Seconds that a job may end after its instance. Its other ranks end when their collectives fail.
"""

REMEMBERED: Final = 300.0
"""Seconds after which slurmctld forgets an ended job: MinJobAge's default."""

_ENDED_BADLY: Final = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL"})


@dataclass(frozen=True, slots=True)
class Loss:
    """An instance that ended, or stopped responding, without our doing."""

    node: NodeName
    what: str
    """The instance's id, or the node's name where that is unknown."""
    at: float


@dataclass(frozen=True, slots=True)
class Comeback:
    """A job to requeue."""

    job: int
    why: str
    """Text for the job's AdminComment. It names the instance, so each loss requeues a job once."""


def losses(world: Snapshot) -> tuple[Loss, ...]:
    """Return recently ended instances and nodes that do not respond."""
    ended = [
        machine
        for machine in world.instances
        if machine.node is not None and machine.state.lost and machine.id not in world.claims.ended
    ]
    launches = _launches(world, {machine.node for machine in ended})
    gone = [
        Loss(machine.node, machine.id, _end(machine, launches[machine.node], world.now))
        for machine in ended
        if machine.node is not None
    ]
    known = {loss.node for loss in gone}
    silent = [
        Loss(name, node.instance_id or name, world.now)
        for name in world.config.pool_by_node
        if (node := world.nodes.get(name)) is not None
        and name not in known
        and node.silent
        and not (node.off or node.powering_up)
    ]
    recent = REMEMBERED + BEFORE
    return tuple(loss for loss in (*gone, *silent) if world.now - loss.at <= recent)


def _launches(
    world: Snapshot, nodes: Collection[NodeName | None]
) -> Mapping[NodeName, list[float]]:
    """Map these nodes to the launch times of their instances."""
    found: dict[NodeName, list[float]] = {}
    for machine in world.instances:
        if machine.node is not None and machine.node in nodes:
            found.setdefault(machine.node, []).append(machine.launched_at)
    return found


def _end(machine: Instance, launches: Iterable[float], now: float) -> float:
    """Return the latest time at which an instance may have ended.

    EC2 lists it for an hour, and may not say when it ended. A node gets its next instance only
    after the one before has ended.
    """
    if machine.ended_at is not None:
        return machine.ended_at
    return min((at for at in launches if at > machine.launched_at), default=now)


def due(jobs: Iterable[EndedJob], lost: Iterable[Loss]) -> tuple[Comeback, ...]:
    """Return the jobs to requeue.

    Each names the first of its instances that was lost around its end.
    """
    by_node: dict[str, list[Loss]] = {}
    for one in lost:
        by_node.setdefault(one.node, []).append(one)
    found = []
    for job in jobs:
        if not (job.requeue and job.flags & _ENDED_BADLY) or job.code == DO_NOT_REQUEUE:
            continue
        loss = next(iter(_of(job, by_node)), None)
        if loss is not None and loss.what not in job.admin_comment:
            text = f"{REASON_PREFIX} brought back: it ended as it lost {loss.node} ({loss.what})"
            found.append(Comeback(job.id, text))
    return tuple(found)


def _of(job: EndedJob, by_node: Mapping[str, Sequence[Loss]]) -> list[Loss]:
    nodes = hostlist.expand(job.nodes, odd=[])  # odd names are not our nodes
    return [
        loss
        for node in nodes
        for loss in by_node.get(node, ())
        # A loss before the job's start was another job's: the node has a new instance since.
        if loss.at >= job.started_at and -BEFORE <= job.ended_at - loss.at <= AFTER
    ]
