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
    from collections.abc import Iterable, Mapping, Sequence

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.reconciler.snapshot import Snapshot


DO_NOT_REQUEUE: Final = 93
"""Exit code of a training job that must not be requeued (toolkit.training.attempt.verdict)."""

SECONDS_BEFORE_LOSS: Final = 150.0
"""Seconds that a job may end before its instance. A spot notice is two minutes."""

SECONDS_AFTER_LOSS: Final = 120.0
"""Seconds that a job may end after its instance. Its other ranks end when their collectives fail.
"""

MIN_JOB_AGE: Final = 300.0
"""Seconds after which slurmctld forgets an ended job: MinJobAge's default."""

_FAILED_STATES: Final = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL"})


@dataclass(frozen=True, slots=True)
class InstanceLoss:
    """An instance that ended, or stopped responding, without our doing."""

    node: NodeName
    label: str
    """The instance's id, or the node's name where that is unknown."""
    at: float


@dataclass(frozen=True, slots=True)
class Requeue:
    """A job to requeue."""

    job: int
    comment: str
    """Text for the job's AdminComment. It names the instance, so each loss requeues a job once."""


def losses(snapshot: Snapshot) -> tuple[InstanceLoss, ...]:
    """Return recently ended instances and nodes that do not respond."""
    ended = [
        (item.node, item)
        for item in snapshot.instances
        if item.node is not None
        and item.state.not_working
        and item.id not in snapshot.journal.termination_causes
    ]
    launch_times: dict[NodeName, list[float]] = {node: [] for node, _ in ended}
    for item in snapshot.instances:
        if item.node in launch_times:
            launch_times[item.node].append(item.launched_at)
    instance_losses = [
        InstanceLoss(node, item.id, _latest_end(item, launch_times[node], snapshot.now))
        for node, item in ended
    ]
    node_losses = [
        InstanceLoss(name, node.instance_id or name, snapshot.now)
        for name in snapshot.config.pool_by_node
        if (node := snapshot.nodes.get(name)) is not None
        and name not in launch_times
        and node.not_responding
        and not (node.powering_off or node.powering_up)
    ]
    longest_age = MIN_JOB_AGE + SECONDS_BEFORE_LOSS
    all_losses = (*instance_losses, *node_losses)
    return tuple(loss for loss in all_losses if snapshot.now - loss.at <= longest_age)


def _latest_end(instance: Instance, launch_times: Iterable[float], now: float) -> float:
    """Return the latest time at which an instance may have ended.

    EC2 lists it for an hour, and may not say when it ended. A node gets its next instance only
    after the one before has ended.
    """
    if instance.ended_at is not None:
        return instance.ended_at
    return min((at for at in launch_times if at > instance.launched_at), default=now)


def jobs_to_requeue(
    jobs: Iterable[EndedJob], instance_losses: Iterable[InstanceLoss]
) -> tuple[Requeue, ...]:
    """Return the jobs to requeue.

    Each names the first of its instances that was lost around its end.
    """
    by_node: dict[str, list[InstanceLoss]] = {}
    for instance_loss in instance_losses:
        by_node.setdefault(instance_loss.node, []).append(instance_loss)
    requeues = []
    for job in jobs:
        if not (job.requeue and job.flags & _FAILED_STATES) or job.code == DO_NOT_REQUEUE:
            continue
        loss = next(iter(_losses_of(job, by_node)), None)
        if loss is not None and loss.label not in job.admin_comment:
            text = f"{REASON_PREFIX} requeued: it ended as it lost node {loss.node} ({loss.label})"
            requeues.append(Requeue(job.id, text))
    return tuple(requeues)


def _losses_of(job: EndedJob, by_node: Mapping[str, Sequence[InstanceLoss]]) -> list[InstanceLoss]:
    nodes = hostlist.expand(job.nodes, invalid_names=[])  # other names are not our nodes
    return [
        loss
        for node in nodes
        for loss in by_node.get(node, ())
        # A loss before the job's start was another job's: the node has a new instance since.
        if loss.at >= job.started_at
        and -SECONDS_BEFORE_LOSS <= job.ended_at - loss.at <= SECONDS_AFTER_LOSS
    ]
