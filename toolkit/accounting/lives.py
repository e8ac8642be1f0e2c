"""An instance's life, from the best evidence of ledger, EC2, CloudTrail and Slurm.

EC2 bills an instance from its state `running` on. The ledger has the first pass that saw
the state. A job that ran before that pass proves that the instance was running.

Nobody saw the end of some instances: EC2 forgot them while no pass ran. Such a life ends
with its last evidence. That is a pass, the end of a job on its node, or the power-down of
its node. A node that slurmctld found dead was powered down late, so that is none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolkit.accounting.node_instances import NodeInstances

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.instances import Instance


FOUND_DEAD = frozenset({"BOOT_FAIL", "NODE_FAIL"})
"""States whose end is the discovery of a dead node."""

ENDED_BY_SLURM = frozenset({"CANCELLED", "DEADLINE", "PREEMPTED"})
"""States whose end slurmctld decided, so it is no late discovery of a dead node."""


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The seconds at which sacct proves that an instance was running."""

    first: int | None = None
    last: int = 0
    found_dead: bool = False


def billed_lives(
    instances: Iterable[Instance], attempts: Iterable[Attempt], now: int
) -> list[Instance]:
    """Return the instances with the start and the end of their bills."""
    instances = list(instances)
    nodes = NodeInstances(instances, now)
    evidence: dict[str, _Evidence] = defaultdict(_Evidence)
    for attempt in attempts:
        if attempt.started is None:
            continue
        for node in attempt.nodes:
            # The newest, if there are two: the older one ended without a pass that saw it.
            for instance in nodes.between(node, attempt.started, attempt.started)[-1:]:
                known = evidence[instance.instance_id]
                evidence[instance.instance_id] = _extended(known, instance, attempt, nodes)
    return [_billed_life(instance, evidence[instance.instance_id], nodes) for instance in instances]


def _billed_life(instance: Instance, evidence: _Evidence, nodes: NodeInstances) -> Instance:
    ended, running = instance.ended, instance.running
    if not instance.end_seen:
        last = max(instance.launched, running or 0, instance.seen_at or 0, evidence.last)
        if instance.powered_down is not None and not evidence.found_dead:
            last = max(last, min(instance.powered_down, nodes.next_launch(instance)))
        ended = last if ended is None else max(min(ended, last), instance.launched)
    if running is not None:
        seconds = [running] if evidence.first is None else [running, evidence.first]
        running = max(min(seconds), instance.launched)
        running = running if ended is None else min(running, max(ended, instance.launched))
    if (running, ended) == (instance.running, instance.ended):
        return instance
    return replace(instance, running=running, ended=ended)


def _extended(
    known: _Evidence, instance: Instance, attempt: Attempt, nodes: NodeInstances
) -> _Evidence:
    """Return the evidence with this attempt's."""
    started = attempt.started or 0
    first, last = known.first, known.last
    if attempt.certainly_ran:
        first = started if first is None else min(first, started)
    if attempt.certainly_ran or attempt.state in ENDED_BY_SLURM:
        # The next instance of the node was not launched while this one lived.
        limit = min(nodes.next_launch(instance), nodes.end(instance))
        last = max(last, min(attempt.ended or started, limit))
    return _Evidence(first, last, known.found_dead or attempt.state in FOUND_DEAD)
