"""The periods of one cluster: their reports, their doubtful rows, and the changes of their states.

An open period is reported from the store's closed days. A closed one is reported from its own copy.
What becomes known of a closed period later is a correction, which the next open period books.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from toolkit.accounting import periods
from toolkit.accounting.days import day_of
from toolkit.accounting.period_part import PeriodPart
from toolkit.bill.history import bill_status
from toolkit.statements import copies, log, uses
from toolkit.statements.doubts import doubts_of, missing_days
from toolkit.statements.errors import PeriodNotReady
from toolkit.statements.states import PeriodRecord, State, history
from toolkit.usage import closed_store, database as databases
from toolkit.usage.closed_report import closed_report, split, summed_report
from toolkit.usage.summed_report import with_projects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.cost_policy import CostPolicy
    from toolkit.accounting.period_part import PeriodCorrection
    from toolkit.accounting.periods import Period
    from toolkit.accounting.report import Report
    from toolkit.accounting.segments import Segment
    from toolkit.bill.history import History
    from toolkit.statements.copies import PeriodCopy
    from toolkit.statements.doubts import Doubt
    from toolkit.statements.settings import StatementSettings
    from toolkit.usage.closed_store import ClosedDays
    from toolkit.usage.cluster_store import ClusterStore
    from toolkit.usage.database import Database


@dataclass(frozen=True)  # without slots: what was read is kept
class ClusterPeriods:
    """The periods of a cluster, as they are at one time."""

    store: ClusterStore
    settings: StatementSettings
    policy: CostPolicy
    bills: History
    now: int
    who: str

    @property
    def log_file(self) -> Path:
        """Return the log's path."""
        return self.store.folder / log.FILE

    @cached_property
    def records(self) -> dict[str, PeriodRecord]:
        """Return the periods that the log has."""
        return history(log.read(self.log_file))

    @cached_property
    def days(self) -> ClosedDays:
        """Return the store's closed days."""
        return closed_store.read(self.store)

    @cached_property
    def closed(self) -> dict[str, PeriodCopy]:
        """Return the closed periods, in their order."""
        return {
            name: copies.read(self.store, record)
            for name, record in sorted(self.records.items())
            if record.is_closed
        }

    def record(self, period: Period) -> PeriodRecord:
        """Return a period's state."""
        return self.records.get(period.name, PeriodRecord(period.name))

    def months(self) -> list[Period]:
        """Return the months from the first closed day to today's."""
        if not self.days.days:
            return []
        month = periods.month_of(day_of(min(self.days.days)))
        found = []
        while month.window.since <= self.now:
            found.append(month)
            month = periods.month_of(day_of(month.window.until))
        return found

    def has_closed_days(self, period: Period) -> bool:
        """Return whether the month has closed days here."""
        window = period.window
        return period.name in self.closed or any(
            window.since <= day < window.until for day in self.days.days
        )

    # Reports

    def report(self, period: Period) -> Report:
        """Return a month's report, a closed one's as it was closed.

        An open one has its closed days so far. Corrections of earlier periods are apart from its
        own cost. Raises PeriodNotReady and PeriodCopyDamaged.
        """
        copy = self.closed.get(period.name)
        if copy is not None:
            return self._closed_report(period, copy)
        return replace(self.live_report(period), period=self.open_part(period))

    @contextmanager
    def printed(self, period: Period) -> Iterator[Report]:
        """Yield a closed month's report. SQL makes its sums and charges meanwhile."""
        with databases.opened() as database:
            yield self._closed_report(period, self.closed[period.name], database)

    def open_part(self, period: Period) -> PeriodPart:
        """Return the state of an open month, and what it will book."""
        record = self.record(period)
        corrections = tuple(item for own in self.pending(period).values() for item in own)
        return PeriodPart(period.name, record.state.value, record.revision, corrections=corrections)

    def _closed_report(
        self, period: Period, copy: PeriodCopy, database: Database | None = None
    ) -> Report:
        record, facts = copy.record, copy.facts
        at = record.closed_at or 0
        report = self._of_days(period, copy.store, copy.days, at, facts.policy, database=database)
        # Also of a final period: it must print the same bytes as before.
        part = PeriodPart(
            period.name, State.CLOSED.value, record.revision, at, corrections=facts.booked
        )
        report = replace(report, bill_status=facts.bill_status, period=part)
        return with_projects(report, facts.settings.projects)

    def live_report(self, period: Period) -> Report:
        """Return the report of a month's closed days, as known now.

        Raises PeriodNotReady if it has none.
        """
        report = self._of_days(period, self.store, self.days, self.now, self.policy)
        status = bill_status(self.bills, period.first, min(period.last, day_of(self.now)))
        return with_projects(replace(report, bill_status=status), self.settings.projects)

    def _of_days(
        self,
        period: Period,
        store: ClusterStore,
        days: ClosedDays,
        now: int,
        policy: CostPolicy,
        *,
        database: Database | None = None,
    ) -> Report:
        parts = split(days, closed_part(period, days).window, costs_always=False)
        if not parts.is_closed:
            raise PeriodNotReady(
                f"no day of {period.name} is closed",
                next_step="`toolkit usage close` closes the days that the records cover",
            )

        cluster = self.settings.cluster
        if database is not None:
            summed = summed_report(database, store, days, parts, now=now, cluster=cluster)
            if summed is not None:
                return summed

        def computed(window: Window, until: int) -> Segment:
            raise AssertionError((window, until))  # all of its days are closed

        return closed_report(
            store, days, parts, now=now, cluster=cluster, policy=policy, collect=computed
        )

    # Corrections

    def pending(self, period: Period) -> dict[str, tuple[PeriodCorrection, ...]]:
        """Return the corrections that a month would book, by the closed period.

        They are booked in the first month behind the closed one that is not closed.
        """
        found = {}
        for name, copy in self.closed.items():
            if name < period.name and self._next_open(name) == period.name:
                own = self._correction(name, copy)
                if own:
                    found[name] = own
        return found

    def _next_open(self, name: str) -> str:
        month = periods.month_named(name)
        while month.name in self.closed or month.name == name:
            month = periods.month_of(day_of(month.window.until))
        return month.name

    def _correction(self, name: str, copy: PeriodCopy) -> tuple[PeriodCorrection, ...]:
        """Return what a closed period's booked amounts lack."""
        until = self._next_open(name)
        later = [item.facts for other, item in self.closed.items() if other > name]
        booked = [item for facts in later for item in facts.booked if item.period == name]
        digest = copy.record.digest
        # A month behind an open one may have seen what the open one no longer books.
        seers = [item.facts for other, item in self.closed.items() if name < other < until]
        seen = next((item.seen[digest] for item in reversed(seers) if digest in item.seen), None)
        if seen is None and not booked:
            seen = _closings(copy.days, periods.month_named(name))
        if _closings(self.days, periods.month_named(name)) == seen:
            return ()  # nothing came to be known since
        period = periods.month_named(name)
        current = self._of_days(period, self.store, self.days, self.now, copy.facts.policy)
        current = with_projects(current, copy.facts.settings.projects)
        before = [*uses.uses_of(self._closed_report(period, copy)), *map(uses.use_of, booked)]
        return uses.corrections(name, uses.uses_of(current), before)

    def seen_by(self, period: Period) -> dict[str, dict[int, int]]:
        """Return the closings of the days whose corrections a month would book.

        They are by the digest of the closed period, so a later revision has none.
        """
        return {
            copy.record.digest: _closings(self.days, periods.month_named(name))
            for name, copy in self.closed.items()
            if name < period.name and self._next_open(name) == period.name
        }

    # Doubtful rows

    def doubts(self, period: Period) -> tuple[Doubt, ...]:
        """Return the doubtful rows of a month by what is known now."""
        found = doubts_of(self.live_report(period), self.settings)
        last = closed_part(period, self.days).last
        return found if last == period.last else (missing_days(last), *found)

    def unapproved(self, period: Period) -> tuple[Doubt, ...]:
        """Return the rows that nobody has approved."""
        approved = self.record(period).approved
        return tuple(item for item in self.doubts(period) if item.id not in approved)


def closed_part(period: Period, days: ClosedDays) -> Period:
    """Return the part of a month up to its last closed day.

    The records of a cluster that was destroyed end in a month.
    """
    if days.until is None or not period.window.since < days.until < period.window.until:
        return period
    return replace(period, last=day_of(days.until - 1))


def _closings(days: ClosedDays, month: Period) -> dict[int, int]:
    """Return the last closing of each closed day of a month."""
    window = month.window
    return {
        day: item.closing for day, item in days.days.items() if window.since <= day < window.until
    }
