"""A report of a time that has closed days: these are read, and the rest is computed as ever.

A closed day is a segment of the report. Exact parts are added before anything is rounded, so the
report has the sums of one that was computed at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolkit.accounting.allocation import Window
from toolkit.accounting.closed_part import ClosedCorrection, ClosedPart
from toolkit.accounting.days import DAY
from toolkit.accounting.segments import report_of
from toolkit.usage import closed_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.accounting.cost_policy import CostPolicy
    from toolkit.accounting.report import Report
    from toolkit.accounting.segments import Segment
    from toolkit.usage.closed_store import ClosedDays
    from toolkit.usage.cluster_store import ClusterStore


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
    window = report.window
    if all(item.first_cost is None for item in segments):
        window = replace(window, since=parts.window.since)
    return replace(
        report,
        window=window,
        asked_since=parts.window.since,
        closed=ClosedPart(parts.days, parts.is_closed, _corrections(closed, parts)),
        notes=(*report.notes, *_notes(store, parts, has_other_policy=len(policies) > 1)),
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
