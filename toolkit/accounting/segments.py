"""Segments of a report's time, and the report that they add up to.

A report has one segment as a rule. It has more where days in it are closed: what was closed is one,
what is open is another. Exact parts are added, and the whole is rounded, so a report of segments
has the sums of one that was built at once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from toolkit.accounting.attempts import own_key
from toolkit.accounting.cost_policy import CostPolicy
from toolkit.accounting.parts import InstanceParts, added, rounded
from toolkit.accounting.report import Report
from toolkit.accounting.shares import shares

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.charges import InstanceCost
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.set_aside import SetAside

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Segment:
    """The facts of a part of a report's time. Nothing in it is rounded."""

    window: Window
    parts: tuple[InstanceParts, ...]
    instances: Mapping[str, Instance]  # and racks' nodes and resources, by id
    attempts: Mapping[int, Attempt]
    cost_policy: CostPolicy = field(default_factory=CostPolicy)
    notes: tuple[str, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    jobs_without_cost: tuple[str, ...] = ()
    first_cost: int | None = None
    """The first second at which something could cost; None: nothing did."""


def report_of(cluster: str, segments: Sequence[Segment], now: int, policy: CostPolicy) -> Report:
    """Return the report of segments that follow each other in time."""
    segments = _with_common_keys(segments)
    until = segments[-1].window.until
    costs = tuple(_costs(segments, until))
    instances: dict[str, Instance] = {}
    attempts: dict[int, Attempt] = {}
    for segment in segments:
        instances |= segment.instances
        attempts |= segment.attempts
    charged = {cost.instance_id for cost in costs}
    return Report(
        cluster=cluster,
        window=replace(segments[0].window, since=_since(segments), until=until),
        made_at=now,
        costs=costs,
        instances={name: item for name, item in instances.items() if name in charged},
        attempts=attempts,
        set_aside=_once(item for segment in segments for item in segment.set_aside),
        jobs_without_cost=_once(name for segment in segments for name in segment.jobs_without_cost),
        notes=_once(note for segment in segments for note in segment.notes),
        cost_policy=policy,
        shares=shares(costs, policy),
    )


def _since(segments: Sequence[Segment]) -> int:
    """Return the first second at which something could cost."""
    first = segments[0].window.since
    found = [item.first_cost for item in segments if item.first_cost is not None]
    return max(first, min(found, default=first))


def _costs(segments: Sequence[Segment], until: int) -> Iterable[InstanceCost]:
    """Yield the cost of each instance.

    Days that were closed by another policy keep it: each policy's parts are rounded apart.
    """
    items: dict[str, list[tuple[CostPolicy, InstanceParts]]] = defaultdict(list)
    for segment in segments:
        for item in segment.parts:
            items[item.instance_id].append((segment.cost_policy, item))
    for own in items.values():
        policies = list(dict.fromkeys(policy for policy, _ in own))
        for policy in policies:
            same = [item for other, item in own if other == policy]
            cost = rounded(added(same, until), policy)
            if cost is not None:
                yield cost


def _once(items: Iterable[Item]) -> tuple[Item, ...]:
    return tuple(dict.fromkeys(items))


def _with_common_keys(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return the segments; no two attempts in them have one key.

    A restored database gives a DBIndex again. A segment that has both attempts has renamed the
    older one, and a segment that has one of them has not.
    """
    if len(segments) == 1:
        return segments
    newest: dict[int, Attempt] = {}
    keys = {key for segment in segments for key in segment.attempts}
    for segment in segments:
        for key, attempt in segment.attempts.items():
            known = newest.get(key)
            if known is None or (attempt.submitted or 0) >= (known.submitted or 0):
                newest[key] = attempt
    return [_renamed(segment, _new_keys(segment, newest, keys)) for segment in segments]


def _new_keys(
    segment: Segment, newest: Mapping[int, Attempt], keys: Collection[int]
) -> dict[int, int]:
    """Return new keys for attempts that share theirs with newer ones."""
    new_keys = {}
    for key, attempt in segment.attempts.items():
        last = newest[key]
        is_last = (attempt.job_id, attempt.submitted) == (last.job_id, last.submitted)
        own = own_key(attempt)
        if not is_last or own in keys:
            new_keys[key] = own
    return new_keys


def _renamed(segment: Segment, new_keys: Mapping[int, int]) -> Segment:
    if not new_keys:
        return segment
    return replace(
        segment,
        attempts={
            new_keys.get(key, key): replace(attempt, key=new_keys.get(key, key))
            for key, attempt in segment.attempts.items()
        },
        parts=tuple(
            replace(
                item,
                parts=tuple(
                    replace(part, attempt=new_keys.get(part.attempt, part.attempt))
                    if part.attempt is not None
                    else part
                    for part in item.parts
                ),
            )
            for item in segment.parts
        ),
    )
