"""Builds a report from attempts, instances and prices. Pure: all input is in the arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit.accounting import notes
from toolkit.accounting.allocation import Policy, Window, allocate
from toolkit.accounting.attempt_instances import match_instances
from toolkit.accounting.attempts import with_resizes
from toolkit.accounting.lives import billed_lives
from toolkit.accounting.report import Report
from toolkit.accounting.runaways import ends_of_runaways, with_ends

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from toolkit.accounting.attempt_instances import InstanceMatch
    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.charges import InstanceCost
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.set_aside import SetAside
    from toolkit.prices import PriceBook, Shape


def build(
    *,
    cluster: str,
    attempts: Sequence[Attempt],
    instances: Sequence[Instance],
    shapes: Mapping[str, Shape],
    book: PriceBook,
    window: Window,
    now: int,
    policy: Policy | None = None,
    set_aside: Sequence[SetAside] = (),
    disagreements: Sequence[str] = (),
) -> Report:
    """Build the report of one window.

    `attempts` must reach back to the launch of the first instance that overlaps the
    window. The jobs before it tell boot and idle time apart. `shapes` is by instance id.
    """
    attempts = with_resizes(attempts)
    instances = billed_lives(instances, attempts, now)
    attempts, match, runaway_ends = _matched(attempts, instances, shapes, window, now)
    costs = tuple(_costs(instances, match, book, window, policy or Policy()))
    by_id = {instance.instance_id: instance for instance in instances}
    attempts_in_window = [attempt for attempt in attempts if _overlaps(attempt, window, now)]
    without_cost = _without_cost(attempts_in_window, frozenset(match.without_instance))
    return Report(
        cluster=cluster,
        window=window,
        made_at=now,
        costs=costs,
        instances={cost.instance_id: by_id[cost.instance_id] for cost in costs},
        attempts={attempt.key: attempt for attempt in attempts},
        set_aside=tuple(set_aside),
        jobs_without_cost=tuple(dict.fromkeys(name for names in without_cost for name in names)),
        notes=(
            *notes.set_aside_notes(set_aside),
            *disagreements,
            *notes.instance_notes(costs, by_id, match, window),
            *notes.runaways(attempts_in_window, runaway_ends),
            *notes.attempt_notes(attempts, *without_cost),
        ),
    )


def _matched(
    attempts: Sequence[Attempt],
    instances: Sequence[Instance],
    shapes: Mapping[str, Shape],
    window: Window,
    now: int,
) -> tuple[Sequence[Attempt], InstanceMatch, Mapping[int, int]]:
    """Match attempts with instances; return the ends of runaways as well.

    Attempts and instances that began behind the window change none of its charges, so a
    window that is over stays as it is. They are asked only where a job has no instance.
    """
    begun = [attempt for attempt in attempts if _begin(attempt) < window.until]
    launched = [instance for instance in instances if instance.launched < window.until]
    match = match_instances(begun, launched, shapes, now)
    runaway_ends = ends_of_runaways(begun, match.usages)
    if runaway_ends:
        attempts, begun = with_ends(attempts, runaway_ends), with_ends(begun, runaway_ends)
        match = match_instances(begun, launched, shapes, now)
    if match.without_instance and len(launched) < len(instances):
        keys = frozenset(match.without_instance)
        doubtful = [attempt for attempt in begun if attempt.key in keys]
        without_instance = match_instances(doubtful, instances, shapes, now).without_instance
        match = replace(match, without_instance=without_instance)
    return attempts, match, runaway_ends


def _begin(attempt: Attempt) -> int:
    """Return when it was submitted or started, whichever is earlier."""
    moments = [second for second in (attempt.submitted, attempt.started) if second is not None]
    return min(moments, default=0)


def _costs(
    instances: Iterable[Instance],
    match: InstanceMatch,
    book: PriceBook,
    window: Window,
    policy: Policy,
) -> Iterator[InstanceCost]:
    for instance in instances:
        usages = match.usages.get(instance.instance_id, ())
        waits = match.waits.get(instance.instance_id, ())
        cost = allocate(instance, usages, book, window, policy, waits=waits)
        if cost is not None:
            yield cost


def _without_cost(
    attempts: Iterable[Attempt], without_instance: frozenset[int]
) -> tuple[list[str], list[str]]:
    """Return jobs without a known instance, and jobs on other nodes."""
    jobs_without_instance, jobs_elsewhere = set(), set()
    for attempt in attempts:
        if attempt.key in without_instance:
            jobs_without_instance.add(f"job {attempt.job}")
        if attempt.node_count > len(attempt.nodes) and attempt.certainly_ran:
            jobs_elsewhere.add(f"job {attempt.job}")
    return sorted(jobs_without_instance), sorted(jobs_elsewhere)


def _overlaps(attempt: Attempt, window: Window, now: int) -> bool:
    end = now if attempt.ended is None else attempt.ended
    return (attempt.started or 0) < window.until and end > window.since
