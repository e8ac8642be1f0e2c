"""Which jobs should come back although Slurm has let them end: their machine was taken from them.

Slurm requeues the jobs of a node that it knows to be gone. But the ranks on the other nodes notice
first, and a script that ends with their error is a failed job, minutes before EC2 or Slurm has said
a word. Here the job's end is held against the machines' ends. Pure: reconcile does it.
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
"""A training job's "don't bring me back" (toolkit.training.attempt.verdict)."""

BEFORE: Final = 150.0
"""A job may end this long before its machine: a spot notice is two minutes."""

AFTER: Final = 120.0
"""And this long after: what is left of it ends when its collectives fail."""

REMEMBERED: Final = 300.0
"""slurmctld forgets an ended job after MinJobAge, 300 s by default."""

_ENDED_BADLY: Final = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL"})


@dataclass(frozen=True, slots=True)
class Loss:
    """A machine that ended, or fell silent, without our doing."""

    node: NodeName
    what: str
    at: float


@dataclass(frozen=True, slots=True)
class Comeback:
    """`why` goes into the job's AdminComment, and says which machine: once is enough."""

    job: int
    why: str


def losses(world: Snapshot) -> tuple[Loss, ...]:
    """Machines that went lately, as EC2 lists them, and nodes that do not answer now."""
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
    """When the machines of these nodes were launched."""
    found: dict[NodeName, list[float]] = {}
    for machine in world.instances:
        if machine.node is not None and machine.node in nodes:
            found.setdefault(machine.node, []).append(machine.launched_at)
    return found


def _end(machine: Instance, launches: Iterable[float], now: float) -> float:
    """When a machine ended, at the latest: EC2 lists it for an hour, and may not say.

    A node gets its next machine when the one before has ended.
    """
    if machine.ended_at is not None:
        return machine.ended_at
    return min((at for at in launches if at > machine.launched_at), default=now)


def due(jobs: Iterable[EndedJob], lost: Iterable[Loss]) -> tuple[Comeback, ...]:
    """The jobs to requeue, each for the first of its machines that was lost as it ended."""
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
    nodes = hostlist.expand(job.nodes, odd=[])  # others are not ours
    return [
        loss
        for node in nodes
        for loss in by_node.get(node, ())
        # What went before the job began was another's: the node has had a new machine since.
        if loss.at >= job.started_at and -BEFORE <= job.ended_at - loss.at <= AFTER
    ]
