"""Builds a report from attempts, instances and prices. Pure: all input is in the arguments."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from toolkit.accounting.allocation import Policy, Window, allocate
from toolkit.accounting.attempt_instances import match_instances
from toolkit.accounting.report import Report
from toolkit.prices import PriceSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.charges import InstanceCost
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.set_aside import SetAside
    from toolkit.prices import PriceBook, Shape

_SOURCE_NOTES = {
    PriceSource.CATALOGUE_FOR_SPOT: "spot without price history, at the on-demand price: too high",
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
    set_aside: Sequence[SetAside] = (),
) -> Report:
    """Build the report of one window.

    `attempts` must reach back to the launch of the first instance that overlaps the
    window. The jobs before and after tell boot and idle time apart. `shapes` is by
    instance id.
    """
    policy = policy or Policy()
    match = match_instances(attempts, instances, shapes, now)
    costs = [
        cost
        for item in instances
        if (cost := allocate(item, match.usages.get(item.instance_id, ()), book, window, policy))
    ]
    by_id = {instance.instance_id: instance for instance in instances}
    by_key = {attempt.key: attempt for attempt in attempts}
    attempts_without_instance = [
        by_key[key] for key in match.without_instance if _overlaps(by_key[key], window, now)
    ]
    return Report(
        cluster=cluster,
        window=window,
        made_at=now,
        costs=tuple(costs),
        instances={cost.instance_id: by_id[cost.instance_id] for cost in costs},
        attempts=by_key,
        set_aside=tuple(set_aside),
        notes=(
            *_set_aside_notes(set_aside),
            *_price_notes(costs),
            *_end_notes(costs, by_id),
            *_without_instance_notes(attempts_without_instance),
            *_missing_attempt_notes(attempts),
        ),
    )


def _overlaps(attempt: Attempt, window: Window, now: int) -> bool:
    end = now if attempt.ended is None else attempt.ended
    return (attempt.started or 0) < window.until and end > window.since


def _price_notes(costs: Iterable[InstanceCost]) -> list[str]:
    ids_by_source: dict[PriceSource, list[str]] = defaultdict(list)
    for cost in costs:
        for source in cost.sources:
            ids_by_source[source].append(cost.instance_id)
    return [
        f"{_first_few(ids_by_source[source])}: {text}"
        for source, text in _SOURCE_NOTES.items()
        if ids_by_source[source]
    ]


def _set_aside_notes(set_aside: Iterable[SetAside]) -> list[str]:
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    for item in set_aside:
        cost = "cost unknown" if item.has_unknown_cost else "not counted twice"
        names_by_reason[f"{item.reason}, set aside, {cost}"].append(item.name)
    return [f"{_first_few(names)}: {text}" for text, names in names_by_reason.items()]


def _end_notes(costs: Iterable[InstanceCost], by_id: Mapping[str, Instance]) -> list[str]:
    instance_ids = [cost.instance_id for cost in costs if not by_id[cost.instance_id].end_seen]
    return [f"{_first_few(instance_ids)}: end not seen, counted up to the last sign of life"][
        : bool(instance_ids)
    ]


def _without_instance_notes(attempts: Sequence[Attempt]) -> list[str]:
    if not attempts:
        return []
    jobs = sorted({f"job {attempt.job}" for attempt in attempts})
    return [f"{_first_few(jobs)}: no instance known for their nodes, counted as $0"]


def _missing_attempt_notes(attempts: Iterable[Attempt]) -> list[str]:
    """Return a note on attempts that slurmdbd lacks.

    Slurm counted them as restarts. Their time would show as idle.
    """
    restarts_by_job: dict[str, set[int]] = defaultdict(set)
    for attempt in attempts:
        if attempt.restarts is not None:
            restarts_by_job[attempt.job_id].add(attempt.restarts)
    incomplete_jobs = sorted(
        f"job {job}"
        for job, restarts in restarts_by_job.items()
        if max(restarts) - min(restarts) + 1 > len(restarts)
    )
    return [f"{_first_few(incomplete_jobs)}: slurmdbd lacks an attempt, its time shows as idle"][
        : bool(incomplete_jobs)
    ]


def _first_few(names: Sequence[str]) -> str:
    first_names = ", ".join(names[:3])
    return first_names if len(names) <= 3 else f"{first_names} and {len(names) - 3} more"  # noqa: PLR2004
