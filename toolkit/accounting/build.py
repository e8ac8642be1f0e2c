"""Builds a report from attempts, instances and prices. Pure: all input is in the arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.accounting import notes
from toolkit.accounting.allocation import Policy, Window, allocate
from toolkit.accounting.attempt_instances import match_instances
from toolkit.accounting.lives import billed_lives
from toolkit.accounting.report import Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.accounting.attempts import Attempt
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
    window. The jobs before and after tell boot and idle time apart. `shapes` is by
    instance id.
    """
    policy = policy or Policy()
    instances = billed_lives(instances, attempts, now)
    match = match_instances(attempts, instances, shapes, now)
    costs = [
        cost
        for item in instances
        if (
            cost := allocate(
                item,
                match.usages.get(item.instance_id, ()),
                book,
                window,
                policy,
                waits=match.waits.get(item.instance_id, ()),
            )
        )
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
            *notes.set_aside_notes(set_aside),
            *disagreements,
            *notes.price_notes(costs),
            *notes.end_notes(costs, by_id),
            *notes.start_notes(costs, by_id),
            *notes.reversed_notes(costs, by_id, attempts),
            *notes.without_instance_notes(attempts_without_instance),
            *notes.missing_attempt_notes(attempts),
        ),
    )


def _overlaps(attempt: Attempt, window: Window, now: int) -> bool:
    end = now if attempt.ended is None else attempt.ended
    return (attempt.started or 0) < window.until and end > window.since
