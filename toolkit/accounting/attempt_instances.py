"""Matches attempts with instances: Slurm knows node names, EC2 knows instances.

An attempt uses an instance while it runs there. It waits for one while the instance
boots for it, or is kept for it until the other nodes of the job have booted. sacct sets
an attempt's start anew when its last node is up, so waits are inferred:

* An attempt that started before the instance was launched was waiting for it.
* The first attempt to run on an instance waited for it, since it was eligible at most.
* An attempt for which an instance was launched had its other nodes from that launch on.
  The components of a het job start together, so they wait for each other's instances.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from toolkit.accounting.instances import NEVER_UP
from toolkit.accounting.node_instances import NodeInstances

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.tres import Tres
    from toolkit.prices import Shape


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of one instance by an attempt: start ≤ t < end.

    An attempt that failed at once used it for no second.
    """

    attempt: int  # DBIndex
    start: int
    end: int
    share: Fraction  # of the instance, at most 1
    lost_from: int | None  # the second from which the work is lost; None: nothing is


@dataclass(frozen=True, slots=True)
class Wait:
    """A time in which an instance boots for an attempt, or is kept for it."""

    attempt: int  # DBIndex
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class InstanceMatch:
    """The usages and waits of each instance, and the attempts without a known instance."""

    usages: Mapping[str, tuple[Usage, ...]]  # by instance id
    waits: Mapping[str, tuple[Wait, ...]]  # by instance id
    without_instance: tuple[int, ...]  # attempts that ran on a node without a known instance


def match_instances(
    attempts: Iterable[Attempt],
    instances: Iterable[Instance],
    shapes: Mapping[str, Shape],
    now: int,
) -> InstanceMatch:
    """Match every node of every attempt with its instance at that time.

    The usage is clipped to the instance's life: Slurm notices a dead node late. An
    attempt without a recorded end must not reach into the next instance of that name.
    `shapes` is by instance id.
    """
    candidates = _Candidates(instances, now)
    usages: dict[str, list[Usage]] = defaultdict(list)
    waits: dict[str, list[Wait]] = defaultdict(list)
    without_instance = []
    instances_by_attempt: list[tuple[Attempt, list[Instance]]] = []
    for attempt in attempts:
        matches = candidates.of(attempt)
        own_instances = [match for match in matches if match is not None]
        if None in matches and attempt.certainly_ran:
            without_instance.append(attempt.key)
        if _only_waited(attempt, own_instances):
            for instance in candidates.launched_for(attempt, own_instances):
                waits[instance.instance_id].append(_whole_wait(attempt, instance, now))
            continue
        instances_by_attempt.append((attempt, own_instances))
        for instance in own_instances:
            shape = shapes.get(instance.instance_id)
            usages[instance.instance_id].append(_usage(attempt, instance, shape, now))
    first_users = {key: min(items, key=_order).attempt for key, items in usages.items()}
    for instance, wait in _waits_of_users(instances_by_attempt, first_users):
        waits[instance.instance_id].append(wait)
    return InstanceMatch(
        {key: tuple(sorted(items, key=_order)) for key, items in usages.items()},
        {key: tuple(sorted(items, key=_order)) for key, items in waits.items()},
        tuple(without_instance),
    )


def _order(item: Usage | Wait) -> tuple[int, int]:
    return item.start, item.attempt


class _Candidates:
    """The instances that each node has been."""

    def __init__(self, instances: Iterable[Instance], now: int) -> None:
        self._now = now
        self._nodes = NodeInstances(instances, now)

    def of(self, attempt: Attempt) -> list[Instance | None]:
        """Return the instance of each node, None where none is known."""
        start = attempt.started
        if start is None:
            return []
        return [self._instance(attempt, start, node) for node in attempt.nodes]

    def launched_for(self, attempt: Attempt, own_instances: Iterable[Instance]) -> list[Instance]:
        """Return an attempt's instances, with all that were launched while it waited."""
        start, end = attempt.started or 0, self._end(attempt)
        instances = {instance.instance_id: instance for instance in own_instances}
        for node in attempt.nodes:
            for instance in self._nodes.between(node, start, end):
                if start <= instance.launched < end:
                    instances[instance.instance_id] = instance
        return list(instances.values())

    def _instance(self, attempt: Attempt, start: int, node: str) -> Instance | None:
        """Return the one alive at the start, else the longest overlap's."""

        def overlap(instance: Instance) -> int:
            end = min(self._end(attempt), self._nodes.end(instance))
            return end - max(start, instance.launched)

        def rank(instance: Instance) -> tuple[bool, int, int, str]:
            came_up = instance.end_cause not in NEVER_UP
            return came_up, overlap(instance), instance.launched, instance.instance_id

        node_instances = self._nodes.between(node, start, max(start, self._end(attempt)))
        live_instances = [
            item for item in node_instances if item.launched <= start < self._nodes.end(item)
        ]
        if len(live_instances) == 1:  # as a rule
            return live_instances[0]
        # An attempt of no second may end with its instance.
        least = 0 if attempt.ended == start else 1
        later_instances = [item for item in node_instances if overlap(item) >= least]
        return max(live_instances or later_instances, key=rank, default=None)

    def _end(self, attempt: Attempt) -> int:
        return self._now if attempt.ended is None else attempt.ended


def _only_waited(attempt: Attempt, own_instances: Sequence[Instance]) -> bool:
    """Return whether the attempt never got beyond waiting for its nodes.

    Slurm sets the start anew when the last node is up. A start before a launch is the
    moment at which the attempt was given its nodes. If it surely ran, the clocks of the
    head node and of EC2 differ.
    """
    start = attempt.started or 0
    return not attempt.certainly_ran and any(
        start < instance.launched for instance in own_instances
    )


def _whole_wait(attempt: Attempt, instance: Instance, now: int) -> Wait:
    start = max(attempt.started or 0, instance.launched)
    end = min(
        now if attempt.ended is None else attempt.ended,
        now if instance.ended is None else instance.ended,
    )
    return Wait(attempt.key, start, max(start, end))


def _usage(attempt: Attempt, instance: Instance, shape: Shape | None, now: int) -> Usage:
    start = max(attempt.started or 0, instance.launched)
    instance_end = now if instance.ended is None else instance.ended
    end = min(now if attempt.ended is None else attempt.ended, instance_end)
    share = node_share(attempt, shape)
    return Usage(attempt.key, start, max(start, end), share, attempt.lost_from())


def _waits_of_users(
    instances_by_attempt: Sequence[tuple[Attempt, Sequence[Instance]]],
    first_users: Mapping[str, int],
) -> Iterator[tuple[Instance, Wait]]:
    """Yield all waits for instances that were then used."""
    launches = _launches(instances_by_attempt, first_users)
    for attempt, own_instances in instances_by_attempt:
        first_launch = launches.get(_start_group(attempt))
        yield from _waits_before_use(attempt, own_instances, first_users, first_launch)


def _start_group(attempt: Attempt) -> tuple[str, int | None] | int:
    """Return what the components of a het job's attempt have in common."""
    return (attempt.het_job, attempt.submitted) if attempt.het_job else attempt.key


def _launches(
    instances_by_attempt: Iterable[tuple[Attempt, Sequence[Instance]]],
    first_users: Mapping[str, int],
) -> dict[tuple[str, int | None] | int, int]:
    """Return the first launch for each group of attempts that start together.

    It counts if the attempt was eligible then, and no other one used the instance before.
    """
    launches: dict[tuple[str, int | None] | int, int] = {}
    for attempt, own_instances in instances_by_attempt:
        group = _start_group(attempt)
        for instance in own_instances:
            is_first = first_users[instance.instance_id] == attempt.key
            if is_first and attempt.queued_from <= instance.launched < (attempt.started or 0):
                launches[group] = min(launches.get(group, instance.launched), instance.launched)
    return launches


def _waits_before_use(
    attempt: Attempt,
    own_instances: Sequence[Instance],
    first_users: Mapping[str, int],
    first_launch: int | None,
) -> list[tuple[Instance, Wait]]:
    """Return the attempt's waits for the instances that it then used."""
    started = attempt.started or 0
    waits = []
    for instance in own_instances:
        if first_users[instance.instance_id] == attempt.key:
            start = max(instance.launched, attempt.queued_from)
        elif first_launch is not None:
            start = max(instance.launched, first_launch)
        else:
            continue
        if start < started:
            waits.append((instance, Wait(attempt.key, start, started)))
    return waits


def node_share(attempt: Attempt, shape: Shape | None) -> Fraction:
    """Return the attempt's dominant share of one of its nodes.

    That is the largest of its GPU, CPU and memory parts. sacct gives the sum over all
    nodes, those that are no instances among them, so each node gets an equal part of
    it. If nothing is known of the instance or of the attempt, it is 1.
    """
    if shape is None:
        return Fraction(1)
    return _share(attempt.tres, max(attempt.node_count, len(attempt.nodes), 1), shape)


@lru_cache(maxsize=4096)  # few sizes of jobs meet few sizes of instances
def _share(tres: Tres, nodes: int, shape: Shape) -> Fraction:
    parts = [
        Fraction(amount, nodes * capacity)
        for amount, capacity in (
            (tres.gpus, shape.gpus),
            (tres.cpus, shape.cpus),
            (tres.memory_mib, shape.memory_mib),
        )
        if capacity > 0
    ]
    return min(max(parts, default=Fraction(1)), Fraction(1)) or Fraction(1)
