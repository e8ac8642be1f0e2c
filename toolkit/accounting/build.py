"""Builds a report from attempts, instances and prices. Pure: all input is in the arguments."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from toolkit.accounting.allocation import Policy, Window, allocate
from toolkit.accounting.attempt_instances import bind
from toolkit.accounting.report import Report
from toolkit.prices import PriceSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.charges import InstanceCost
    from toolkit.accounting.instances import Instance
    from toolkit.prices import PriceBook, Shape

_SOURCE_NOTES = {
    PriceSource.LIST_FOR_SPOT: "spot at the on-demand price, for want of history: too high",
    PriceSource.UNKNOWN: "no price known, counted as $0",
}


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
) -> Report:
    """Build the report of one window.

    `attempts` must reach back to the launch of the first instance that overlaps the
    window. The jobs before and after tell boot and idle time apart. `shapes` is by
    instance id.
    """
    policy = policy or Policy()
    bound = bind(attempts, instances, shapes, now)
    costs = []
    for instance in instances:
        usages = bound.usages.get(instance.instance_id, ())
        cost = allocate(instance, usages, book, window, policy)
        if cost is not None:
            costs.append(cost)
    by_id = {instance.instance_id: instance for instance in instances}
    by_key = {attempt.key: attempt for attempt in attempts}
    unbacked = [by_key[key] for key in bound.unbacked if _within(by_key[key], window, now)]
    return Report(
        cluster=cluster,
        window=window,
        made_at=now,
        costs=tuple(costs),
        instances={cost.instance_id: by_id[cost.instance_id] for cost in costs},
        attempts=by_key,
        notes=(
            *_price_notes(costs),
            *_end_notes(costs, by_id),
            *_unbacked_notes(unbacked),
            *_missing_notes(attempts),
        ),
    )


def _within(attempt: Attempt, window: Window, now: int) -> bool:
    end = now if attempt.ended is None else attempt.ended
    return (attempt.started or 0) < window.until and end > window.since


def _price_notes(costs: Iterable[InstanceCost]) -> list[str]:
    found: dict[PriceSource, list[str]] = defaultdict(list)
    for cost in costs:
        for source in cost.sources:
            found[source].append(cost.instance_id)
    return [
        f"{_some(found[source])}: {text}" for source, text in _SOURCE_NOTES.items() if found[source]
    ]


def _end_notes(costs: Iterable[InstanceCost], by_id: Mapping[str, Instance]) -> list[str]:
    unseen = [cost.instance_id for cost in costs if not by_id[cost.instance_id].end_seen]
    return [f"{_some(unseen)}: nobody saw the end, counted up to the last sign of life"][
        : bool(unseen)
    ]


def _unbacked_notes(unbacked: Sequence[Attempt]) -> list[str]:
    if not unbacked:
        return []
    jobs = sorted({f"job {attempt.job}" for attempt in unbacked})
    return [f"{_some(jobs)}: ran on nodes of which no instance is known, at no cost"]


def _missing_notes(attempts: Iterable[Attempt]) -> list[str]:
    """Return a note on attempts that slurmdbd lacks.

    Slurm counted them as restarts. Their time would show as idle.
    """
    counted: dict[str, set[int]] = defaultdict(set)
    for attempt in attempts:
        if attempt.restarts is not None:
            counted[attempt.job_id].add(attempt.restarts)
    holes = sorted(
        f"job {job}" for job, have in counted.items() if max(have) - min(have) + 1 > len(have)
    )
    return [f"{_some(holes)}: slurmdbd lacks an attempt, its time shows as idle"][: bool(holes)]


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"  # noqa: PLR2004
