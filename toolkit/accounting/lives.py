"""An instance's life, from the best evidence of ledger, EC2 and sacct.

EC2 bills an instance from its state `running` on. The ledger has the first pass that saw
the state. A job that ran before that pass proves that the instance was running.

Nobody saw the end of some instances: EC2 forgot them while no pass ran. Such a life ends
with its last evidence, which is a pass, or the end of a job on its node.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.instances import Instance


_ENDED_BY_PEOPLE = frozenset({"CANCELLED", "DEADLINE", "PREEMPTED"})
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
    lives = _Lives(instances, now)
    evidence: dict[str, _Evidence] = {}
    for attempt in attempts:
        for instance in lives.of(attempt):
            known = evidence.get(instance.instance_id, _Evidence())
            evidence[instance.instance_id] = lives.extended(known, instance, attempt)
    return [
        _billed_life(instance, evidence.get(instance.instance_id, _Evidence()))
        for instance in instances
    ]


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


class _Lives:
    """The instances of each node, in turn."""

    def __init__(self, instances: Iterable[Instance], now: int) -> None:
        self._now = now
        self._by_node: dict[str, list[Instance]] = defaultdict(list)
        for instance in sorted(instances, key=lambda item: (item.launched, item.instance_id)):
            if instance.node and not instance.is_head:
                self._by_node[instance.node].append(instance)
        self._next_launch = {
            item.instance_id: following.launched
            for node_instances in self._by_node.values()
            for item, following in pairwise(node_instances)
        }

    def of(self, attempt: Attempt) -> list[Instance]:
        """Return the instances that were the attempt's nodes as it started."""
        second = attempt.started
        if second is None:
            return []
        newest = (
            next(
                (
                    item
                    for item in reversed(self._by_node.get(node, ()))
                    if item.launched <= second and (item.ended is None or second <= item.ended)
                ),
                None,
            )
            for node in attempt.nodes
        )
        return [instance for instance in newest if instance is not None]

    def extended(self, known: _Evidence, instance: Instance, attempt: Attempt) -> _Evidence:
        """Return the evidence with this attempt's."""
        started = attempt.started or 0
        first, last = known.first, known.last
        if attempt.certainly_ran:
            first = started if first is None else min(first, started)
        if attempt.certainly_ran or attempt.state in _ENDED_BY_PEOPLE:
            # The next instance of the node was not launched while this one lived.
            limit = min(
                self._next_launch.get(instance.instance_id, self._now),
                self._now if instance.ended is None else instance.ended,
            )
            last = max(last, min(attempt.ended or started, limit))
        return _Evidence(first, last)
