"""An instance's life, from the best evidence of ledger, EC2 and sacct.

EC2 bills an instance from its state `running` on. The ledger has the first pass that saw
the state. A job that ran before that pass proves that the instance was running.

Nobody saw the end of some instances: EC2 forgot them while no pass ran. Such a life ends
with its last evidence, which is a pass, or the end of a job on its node.
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


ENDED_BY_SLURM = frozenset({"CANCELLED", "DEADLINE", "PREEMPTED"})
"""States whose end slurmctld decided, so it is no late discovery of a dead node."""


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The seconds at which sacct proves that an instance was running."""

    first: int | None = None
    last: int = 0


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
    return [_billed_life(instance, evidence[instance.instance_id]) for instance in instances]


def _billed_life(instance: Instance, evidence: _Evidence) -> Instance:
    ended, running = instance.ended, instance.running
    if not instance.end_seen:
        last = max(instance.launched, running or 0, instance.seen_at or 0, evidence.last)
        ended = last if ended is None else max(min(ended, last), instance.launched)
    if running is not None:
        seconds = [running] if evidence.first is None else [running, evidence.first]
        running = max(min(seconds), instance.launched)
        running = running if ended is None else min(running, max(ended, instance.launched))
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
    return _Evidence(first, last)
