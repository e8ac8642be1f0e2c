"""Closing days: the charges of a day are written once, and later facts are corrections.

A day can be closed when the records of attempts and of instances reach beyond it. Its charges are
those of the exact engine, of all that the records know then. A closed day is weighed again where
facts of it changed, and what differs is written as rows of their own. Prices and payers of
cluster.yaml that changed meanwhile correct nothing by themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Final

from toolkit.accounting import collect
from toolkit.accounting.allocation import Policy, Window
from toolkit.accounting.days import DAY
from toolkit.usage import (
    closed_store,
    closed_sums,
    database as databases,
    day_charges,
    day_details,
    month_sums,
)
from toolkit.usage.closed_store import ClosedDay, ClosedDays, DayCorrection, DayFiles
from toolkit.usage.day_charges import CHARGE, CORRECTION, Amount, Closing, Key, amounts
from toolkit.usage.errors import DayNotKnown
from toolkit.usage.stored_records import BEHIND_ITS_END, StoredRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from toolkit.accounting.collect import Facts, Sources
    from toolkit.accounting.segments import Segment
    from toolkit.usage.cluster_store import ClusterStore

MOST_DAYS: Final = 31
"""Days whose facts are read at once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The days of a closing, by their first seconds."""

    reach: int | None  # the second up to which all facts are known
    new_days: tuple[int, ...] = ()
    checked_days: tuple[int, ...] = ()  # closed, and to be weighed again
    other_settings: tuple[int, ...] = ()  # of these, cluster.yaml has changed since
    batches: int = 0  # of the records that it rests on


@dataclass(frozen=True, slots=True)
class DayResult:
    """A day that was closed, or corrected."""

    day: int
    micro: int
    correction: DayCorrection | None = None


def reach_of(store: ClusterStore, settled: int | None) -> int | None:
    """Return the second up to which all is known.

    It is None without records.
    """
    files = store.records()
    if files.sacct_until is None or files.instances_until is None:
        return None
    return min(files.sacct_until, files.instances_until, settled or files.sacct_until)


def plan(
    store: ClusterStore,
    sources: Sources,
    reach: int | None,
    *,
    through: int | None = None,
    again_from: int | None = None,
) -> Plan:
    """Return the days to close, and the closed ones to weigh again.

    `through` is the last day to close, `again_from` the first day that a person wants weighed
    again. Raises DayNotKnown if the records don't reach behind `through`.
    """
    if reach is None:
        raise DayNotKnown(
            "the store has no records of attempts and instances",
            next_step="the head writes them every 30 minutes; see `toolkit status`",
        )
    last_known = reach - reach % DAY - DAY
    if through is not None and through > last_known:
        raise DayNotKnown(
            f"the records do not reach behind {databases.day(through)}: all is known up to"
            f" {databases.day(last_known)}",
            next_step="close the days up to that one; a day is known when it is over and the head"
            " has written its records",
        )
    batches = store.records().batches  # before their changes are read
    closed = closed_store.read(store)
    first = _first_day(store) if closed.until is None else closed.until
    last = last_known if through is None else through
    new_days = () if first is None else tuple(range(first, last + 1, DAY))
    digest = settings_digest(sources)
    suspects = _suspects(store, closed)
    if again_from is not None:
        suspects |= {day for day in closed.days if day >= again_from}
    other = {day for day in suspects if closed.days[day].settings != digest}
    wanted = {day for day in other if again_from is not None and day >= again_from}
    return Plan(
        reach,
        new_days,
        checked_days=tuple(sorted(suspects - (other - wanted))),
        other_settings=tuple(sorted(other - wanted)),
        batches=batches,
    )


def execute(
    store: ClusterStore,
    sources: Sources,
    planned: Plan,
    *,
    now: int,
    token: Callable[[], str],
    status: Callable[[int], str],
) -> Iterator[DayResult]:
    """Close and correct the planned days; yields each that was written.

    The store's records are the facts.
    Days are named when their files are whole, so it may be killed at any time, and repeated. Raises
    as `collect.gather` does, and UsageStoreError.
    """
    reach = planned.reach or 0
    with store.working() as work:
        sources = replace(sources, records=StoredRecords(store, work.database))
        files = DayFiles(work.database, store.folder, work.temporary)
        run = _Run(files, sources, now, status, closed_store.read(store))
        for days in _runs((*planned.checked_days, *planned.new_days)):
            # One more day, for the next use of what idles at the end of the last one.
            window = Window(days[0], min(max(reach, days[-1] + DAY), days[-1] + 2 * DAY))
            facts = collect.gather(sources, window, now, token())
            known = run.closed
            results = []
            for day in days:
                # As far as a closing of the day alone would know, so it is the same in any run.
                known_until = min(window.until, day + 2 * DAY)
                segment = weigh(facts, sources, day, known_until, now)
                results.append(run.write(segment, known_until))
            if run.closed is not known:
                closed_store.commit(store, run.closed, days)
            yield from filter(None, results)
        _keep_months(files, run.closed, (*planned.checked_days, *planned.new_days))
        _forget_changes(store, planned)


def _forget_changes(store: ClusterStore, planned: Plan) -> None:
    """Say that no facts changed since the last closing.

    Records that another command read since the plan may have changed other days.
    """
    records = store.records()
    if records.batches == planned.batches and not planned.other_settings:
        store.commit_records(replace(records, changed_from=None))


def _keep_months(files: DayFiles, closed: ClosedDays, changed: Sequence[int]) -> None:
    """Write the sums of months that are over, for their reports."""
    for days in month_sums.ended_months(closed, changed):
        own = [closed.days[day] for day in days]
        closed_sums.keep_month(files.database, files.folder, own, days[-1] + DAY, files.temporary)


def weigh(facts: Facts, sources: Sources, day: int, reach: int, now: int) -> Segment:
    """Return the exact parts of one day.

    The facts reach up to `reach`.
    """
    window = Window(day, day + DAY)
    charged = [item for item in facts.instances if collect.overlaps(item, window)]
    since = collect.look_back(charged, window)
    first = min((item.launched for item in charged), default=None)
    # A later job tells how long these lived.
    open_nodes = {item.node for item in facts.instances if not item.end_seen}
    own = replace(
        facts,
        attempts=tuple(
            item
            for item in facts.attempts
            if (item.ended is None or item.ended >= since)
            and (item.begun < reach or not open_nodes.isdisjoint(item.nodes))
        ),
        instances=tuple(
            item
            for item in facts.instances
            if item.ended is None or item.ended + BEHIND_ITS_END >= since
        ),
    )
    always = collect.costs_always(sources)
    # Without any instance so far nobody knows when the cluster began.
    knows_head = any(item.is_head for item in own.instances)
    asked = sources if knows_head else replace(sources, infrastructure=None)
    segment = collect.segment_of(own, asked, window, now, Policy(), matched_until=reach)
    first_cost = day if always else None if first is None else max(day, first)
    return replace(segment, first_cost=first_cost)


@dataclass(slots=True)
class _Run:
    """A run of the program, with the closed days so far."""

    files: DayFiles
    sources: Sources
    now: int
    status: Callable[[int], str]
    closed: ClosedDays

    def write(self, segment: Segment, reach: int) -> DayResult | None:
        """Write a day, or its correction; None if nothing differs."""
        day = segment.window.since
        known = self.closed.days.get(day)
        new = amounts(segment)
        if known is None:
            item = self._written(segment, reach, new)
            self.closed = closed_store.with_day(self.closed, day, item)
            return DayResult(day, item.micro)
        old = self.files.read_charges(known)
        # Who pays is in no amount, but in each row.
        has_other_payers = dict(known.policy) != segment.cost_policy.payers()
        changes = day_charges.differences(old, new, every=has_other_payers)
        if not changes:
            if _has_open_tail(segment, reach) != known.has_open_tail:
                self._learn(segment, reach, known)
            return None
        item = self._written(segment, reach, changes, known)
        item = replace(item, micro=day_charges.net(new))
        correction = DayCorrection(item.closing, self.now, known.micro, item.micro, len(changes))
        item = replace(item, corrections=(*known.corrections, correction))
        self.closed = closed_store.with_day(self.closed, day, item)
        return DayResult(day, item.micro, correction)

    def _learn(self, segment: Segment, reach: int, known: ClosedDay) -> None:
        """Keep what came to be known of the time behind a day.

        That is the next use of what idled at its end: a longer report calls it a gap. It changes
        none of the day's charges.
        """
        day, number = segment.window.since, self.closed.closings + 1
        details = self.files.write_details(day, number, day_details.rows(segment))
        tail = _has_open_tail(segment, reach)
        item = replace(known, closing=number, details=details, has_open_tail=tail)
        self.closed = closed_store.with_day(self.closed, day, item)

    def _written(
        self,
        segment: Segment,
        reach: int,
        rows: Mapping[Key, Amount],
        known: ClosedDay | None = None,
    ) -> ClosedDay:
        """Write the files of a closing; return its day."""
        day, number = segment.window.since, self.closed.closings + 1
        closing = Closing(number, self.now, self.sources.cluster, self.status(day))
        kind = CHARGE if known is None else CORRECTION
        found = day_charges.rows(segment, rows, closing, kind)
        charges = self.files.write_charges(day, number, found)
        details = self.files.write_details(day, number, day_details.rows(segment))
        return ClosedDay(
            charges=(charges,) if known is None else (*known.charges, charges),
            details=details,
            closing=number,
            closed_at=self.now if known is None else known.closed_at,
            reach=reach,
            micro=day_charges.net(rows),
            settings=settings_digest(self.sources),
            policy=self.sources.cost_policy.payers(),
            first_cost=segment.first_cost,
            has_open_tail=_has_open_tail(segment, reach),
        )


def _has_open_tail(segment: Segment, reach: int) -> bool:
    """Return whether an unknown use may make an idle tail a gap.

    What has ended by the second up to which all is known gets no use any more.
    """

    def is_over(name: str) -> bool:
        instance = segment.instances[name]
        if instance.ended is None:
            return False
        # An end that nobody saw may move, if a later job proves that the instance lived on.
        return instance.ended <= (reach if instance.end_seen else segment.window.until)

    return any(
        day_charges.has_open_tail(item, is_over=is_over(item.instance_id)) for item in segment.parts
    )


def settings_digest(sources: Sources) -> str:
    """Return a digest of the prices and payers that cluster.yaml gives."""
    facts = (sources.contracts, sources.cost_policy, sources.racks, sources.infrastructure)
    return hashlib.sha256(_ordered(facts).encode()).hexdigest()[:16]


def _ordered(value: object) -> str:
    """Return the same text for equal values in every process.

    A set has no order of its own.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}{[_ordered(getattr(value, f.name)) for f in fields(value)]}"
    if isinstance(value, Mapping):
        return repr(sorted((str(key), _ordered(item)) for key, item in value.items()))
    if isinstance(value, (set, frozenset)):
        return repr(sorted(map(_ordered, value)))
    if isinstance(value, (tuple, list)):
        return repr([_ordered(item) for item in value])
    return repr(value)


def _suspects(store: ClusterStore, closed: ClosedDays) -> set[int]:
    """Return the closed days whose facts may have changed."""
    suspects = {day for day, item in closed.days.items() if item.has_open_tail}
    changed_from = store.records().changed_from
    if changed_from is not None:
        suspects |= {day for day in closed.days if day + DAY > changed_from}
    return suspects


def _first_day(store: ClusterStore) -> int | None:
    """Return the day of the first instance, and of the first cost."""
    days = store.records().instances.values()
    firsts = [item.first_start for item in days if item.first_start is not None]
    return min(firsts) - min(firsts) % DAY if firsts else None


def _runs(days: Sequence[int]) -> Iterator[list[int]]:
    """Yield days that follow each other, at most `MOST_DAYS` at once."""
    run: list[int] = []
    for day in sorted(days):
        if run and (day != run[-1] + DAY or len(run) == MOST_DAYS):
            yield run
            run = []
        run.append(day)
    if run:
        yield run
