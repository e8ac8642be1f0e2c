"""A report of a time that has closed days: these are read, and the rest is computed as ever.

A closed day is a segment of the report. Exact parts are added before anything is rounded, so the
report has the sums of one that was computed at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from toolkit.accounting.allocation import Window
from toolkit.accounting.closed_part import ClosedCorrection, ClosedPart
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.accounting.days import DAY
from toolkit.accounting.segments import report_of
from toolkit.usage import closed_store
from toolkit.usage.closed_sums import ClosedSums
from toolkit.usage.day_details import NO_COST, NOTE, set_aside_of, texts_of
from toolkit.usage.summed_report import CostsWhenAsked, ReadWhenAsked, SummedReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from toolkit.accounting.charges import InstanceCost
    from toolkit.accounting.report import Report
    from toolkit.accounting.segments import Segment
    from toolkit.usage.closed_store import ClosedDays
    from toolkit.usage.cluster_store import ClusterStore
    from toolkit.usage.database import Database


@dataclass(frozen=True, slots=True)
class Split:
    """A report's time: what is open before its closed days, these, and what is open behind."""

    window: Window
    before: Window | None
    days: tuple[int, ...]  # closed, by their first seconds
    after: Window | None

    @property
    def is_closed(self) -> bool:
        """Return whether nothing is open."""
        return bool(self.days) and self.before is None and self.after is None


def split(closed: ClosedDays, window: Window, *, costs_always: bool) -> Split:
    """Divide a report's time.

    Closed days follow each other. Before the first one there was no instance, so nothing is
    open there unless something costs without any.
    """
    first = window.since + -window.since % DAY
    days = [day for day in sorted(closed.days) if first <= day and day + DAY <= window.until]
    while days and days[-1] + DAY < window.until and closed.days[days[-1]].has_open_tail:
        days.pop()  # the rest of the window may make its idle tail a gap
    if not days:
        return Split(window, window, (), None)
    is_first = days[0] == min(closed.days) and not costs_always
    before = Window(window.since, days[0]) if window.since < days[0] and not is_first else None
    end = days[-1] + DAY
    after = Window(end, window.until) if end < window.until else None
    return Split(window, before, tuple(days), after)


def closed_report(
    store: ClusterStore,
    closed: ClosedDays,
    parts: Split,
    *,
    now: int,
    cluster: str,
    policy: CostPolicy,
    collect: Callable[[Window, int], Segment],
) -> Report:
    """Return the report.

    `collect` weighs an open window, and is given the second up to which attempts are matched.
    """
    segments = closed_store.segments(store, closed, parts.days)
    until = parts.window.until
    if parts.before is not None:
        segments.insert(0, collect(parts.before, min(until, parts.before.until + DAY)))
    if parts.after is not None:
        segments.append(collect(parts.after, until))
    policies = {segment.cost_policy for segment in segments}
    report = report_of(
        cluster, segments, now, next(iter(policies)) if len(policies) == 1 else policy
    )
    firsts = [item.first_cost for item in segments]
    return _named(store, closed, parts, report, firsts, has_other_policy=len(policies) > 1)


def summed_report(
    database: Database,
    store: ClusterStore,
    closed: ClosedDays,
    parts: Split,
    *,
    now: int,
    cluster: str,
) -> Report | None:
    """Return the report of closed days alone, by sums.

    The open database makes them. None: only the exact engine can add these days up.
    """
    days = [closed.days[day] for day in parts.days]
    policies = {tuple(sorted(day.policy.items())) for day in days}
    if not parts.is_closed or len(policies) > 1:
        return None
    policy = CostPolicy(**{key: Payer(value) for key, value in days[0].policy.items()})

    def exact(names: Sequence[str]) -> Sequence[InstanceCost]:
        read_days = closed_store.segments(store, closed, parts.days, names)
        return report_of(cluster, read_days, now, policy).costs

    sums = ClosedSums.of(
        database,
        store.folder,
        days,
        policy,
        until=parts.window.until,
        exact=exact,
    )
    if sums is None:
        return None
    texts = sums.texts()
    firsts = [day.first_cost for day in days]
    since = min((first for first in firsts if first is not None), default=parts.days[0])
    report = SummedReport(
        cluster=cluster,
        window=Window(max(parts.days[0], since), parts.days[-1] + DAY),
        made_at=now,
        costs=CostsWhenAsked(sums.number_of_costs(), cache(sums.costs)),
        instances=ReadWhenAsked(cache(sums.instances)),
        attempts=ReadWhenAsked(cache(sums.attempts)),
        notes=texts_of(texts, NOTE),
        set_aside=set_aside_of(texts),
        jobs_without_cost=texts_of(texts, NO_COST),
        cost_policy=policy,
        sums=sums,
    )
    return _named(store, closed, parts, report, firsts, has_other_policy=False)


def _named(
    store: ClusterStore,
    closed: ClosedDays,
    parts: Split,
    report: Report,
    first_costs: Iterable[int | None],
    *,
    has_other_policy: bool,
) -> Report:
    """Return the report with what it says of its closed days."""
    window = report.window
    if all(first is None for first in first_costs):
        window = replace(window, since=parts.window.since)
    return replace(
        report,
        window=window,
        asked_since=parts.window.since,
        closed=ClosedPart(parts.days, parts.is_closed, _corrections(closed, parts)),
        notes=(*report.notes, *_notes(store, parts, has_other_policy=has_other_policy)),
    )


def _corrections(closed: ClosedDays, parts: Split) -> tuple[ClosedCorrection, ...]:
    return tuple(
        ClosedCorrection(day, item.at, item.old, item.new)
        for day in parts.days
        for item in closed.days[day].corrections
    )


def _notes(store: ClusterStore, parts: Split, *, has_other_policy: bool) -> list[str]:
    notes = []
    changed_from = store.records().changed_from
    if changed_from is not None and changed_from < parts.days[-1] + DAY:
        notes.append(
            "the records say something new about closed days: `toolkit usage close` weighs them"
            " again"
        )
    if has_other_policy:
        notes.append("some closed days have another cost policy, that of their closing")
    return notes
