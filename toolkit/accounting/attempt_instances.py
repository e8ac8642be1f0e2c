"""Matches attempts with instances: Slurm knows node names, EC2 knows instances."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.instances import NEVER_UP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.instances import Instance
    from toolkit.prices import Shape


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of one instance by an attempt: start ≤ t < end."""

    attempt: int  # DBIndex
    start: int
    end: int
    share: Fraction  # of the instance, at most 1
    lost_from: int | None  # the second from which the work is lost; None: nothing is


@dataclass(frozen=True, slots=True)
class InstanceMatch:
    """The usages of each instance, and the attempts without a known instance."""

    usages: Mapping[str, tuple[Usage, ...]]  # by instance id
    without_instance: tuple[int, ...]  # attempts that ran on a node without a known instance


def match_instances(
    attempts: Iterable[Attempt],
    instances: Iterable[Instance],
    shapes: Mapping[str, Shape],
    now: int,
) -> InstanceMatch:
    """Match every node of every attempt with its instance at that time.

    It is the instance that lived when the attempt started, else the one with the
    longest overlap. The usage is clipped to the instance's life: Slurm notices a dead
    node late. An attempt without a recorded end must not reach into the next instance
    of that name.

    `shapes` is by instance id.
    """
    by_node: dict[str, list[Instance]] = defaultdict(list)
    for instance in instances:
        if instance.node and not instance.is_head and instance.end_cause not in NEVER_UP:
            by_node[instance.node].append(instance)
    usages: dict[str, list[Usage]] = defaultdict(list)
    without_instance = []
    for attempt in attempts:
        if attempt.started is None:
            continue
        matches = [_instance_of(attempt, by_node.get(node, ()), now) for node in attempt.nodes]
        for match in matches:
            if match is None:
                continue
            usage = _usage(attempt, match, shapes.get(match.instance_id), now)
            if usage is not None:
                usages[match.instance_id].append(usage)
        if None in matches and _certainly_ran(attempt):
            without_instance.append(attempt.key)
    usages_by_id = {key: tuple(value) for key, value in usages.items()}
    return InstanceMatch(usages_by_id, tuple(without_instance))


def _certainly_ran(attempt: Attempt) -> bool:
    """Return whether the attempt certainly ran.

    Any other attempt may have ended because it got no instances.
    """
    final_state = attempt.state in {"COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"}
    return (final_state or attempt.requeue_requested) and attempt.ended != attempt.started


def _instance_of(attempt: Attempt, candidates: Sequence[Instance], now: int) -> Instance | None:
    start = attempt.started or 0
    end = now if attempt.ended is None else attempt.ended

    def overlap(instance: Instance) -> int:
        instance_end = now if instance.ended is None else instance.ended
        return min(end, instance_end) - max(start, instance.launched)

    live_instances = [
        instance
        for instance in candidates
        if instance.launched <= start and (instance.ended is None or start < instance.ended)
    ]
    best = max(
        live_instances or candidates,
        key=lambda instance: (overlap(instance), instance.launched, instance.instance_id),
        default=None,
    )
    return best if best is not None and overlap(best) > 0 else None


def _usage(attempt: Attempt, instance: Instance, shape: Shape | None, now: int) -> Usage | None:
    start = attempt.started or 0
    instance_end = now if instance.ended is None else instance.ended
    end = min(now if attempt.ended is None else attempt.ended, instance_end)
    # Slurm sets the start anew when the last node is up. A start before the launch means that the
    # attempt is waiting for its instances, or ended while it waited: its cost is boot, not work.
    if start < instance.launched or start >= end:
        return None
    return Usage(attempt.key, start, end, node_share(attempt, shape), attempt.lost_from())


def node_share(attempt: Attempt, shape: Shape | None) -> Fraction:
    """Return the attempt's dominant share of one of its nodes.

    That is the largest of its GPU, CPU and memory parts. sacct gives the sum over all
    nodes, those that are no instances among them, so each node gets an equal part of
    it. If nothing is known of the instance or of the attempt, it is 1.
    """
    nodes = max(attempt.node_count, len(attempt.nodes), 1)
    if shape is None:
        return Fraction(1)
    tres = attempt.tres
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
