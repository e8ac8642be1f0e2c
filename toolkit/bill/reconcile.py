"""Reconciles one bill with one report: what the command prints and records."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from toolkit.bill.errors import BillRefused
from toolkit.bill.history import NewBill, history, new_entries
from toolkit.bill.match import match
from toolkit.bill.notes import notes
from toolkit.bill.periods import coverage
from toolkit.bill.reader import bill_hash
from toolkit.bill.tally import tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from decimal import Decimal

    from toolkit.bill.estimates import Estimates
    from toolkit.bill.history import History
    from toolkit.bill.lines import BillLine
    from toolkit.bill.match import Match
    from toolkit.bill.periods import Coverage
    from toolkit.bill.reader import BillFile
    from toolkit.bill.record import DayStatus, Entry
    from toolkit.bill.tally import Tally


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """A bill held to a report, and what the record gets of it."""

    cluster: str
    bill: str  # hash of its content
    files: tuple[BillFile, ...]
    coverage: tuple[Coverage, ...]
    tally: Tally
    match: Match
    entries: tuple[Entry, ...]
    statuses: Mapping[date, DayStatus]  # of the compared days, with these entries
    notes: tuple[str, ...]

    @property
    def is_within_tolerance(self) -> bool:
        """Return whether all gaps are small, and our lines readable."""
        return self.match.is_within_tolerance and not self.tally.unreadable


@dataclass(frozen=True, slots=True)
class Options:
    """The caller's decisions."""

    now: int  # epoch seconds
    tolerance: Decimal  # US dollars
    final: bool = False  # months that are over count as closed


def reconcile(
    files: Sequence[BillFile],
    lines: Iterable[BillLine],
    estimates: Estimates,
    entries: Sequence[Entry],
    options: Options,
) -> Reconciliation:
    """Return the result, given the record's entries so far. Writes nothing.

    Raises BillRefused if the bill and the report have no day in common.
    """
    bill = tally(lines, estimates.cluster, estimates.nodes.keys())
    today = datetime.fromtimestamp(options.now, UTC).date()
    covered = coverage(bill.periods, today, final=options.final)
    days = frozenset(day for item in covered for day in item.days if estimates.is_complete(day))
    if not days:
        raise _nothing_in_common(covered, estimates)
    result = match(bill, estimates, days, options.tolerance)
    known = history(entries)
    new_bill = _new_bill(files, covered, options)
    # A line of ours without a day may belong to any of them.
    is_datable = all(day is not None for _, day in bill.unreadable)
    added = new_entries(known, new_bill, result) if is_datable else ()
    after = history((*entries, *added))
    return Reconciliation(
        cluster=estimates.cluster,
        bill=new_bill.bill,
        files=tuple(files),
        coverage=covered,
        tally=bill,
        match=result,
        entries=added,
        statuses={day: after.status(day) for day in sorted(days)},
        notes=notes(bill, covered, result, replaced=_replaced(known, new_bill)),
    )


def _new_bill(files: Sequence[BillFile], covered: Sequence[Coverage], options: Options) -> NewBill:
    return NewBill(
        bill=bill_hash(files),
        files=tuple(sorted(file.sha256 for file in files)),
        months=tuple(item.month for item in covered),
        final_days=frozenset(day for item in covered if item.closed for day in item.days),
        at=options.now,
    )


def _replaced(known: History, bill: NewBill) -> tuple[date, ...]:
    return known.replaced_months(bill.bill, bill.months)


def _nothing_in_common(covered: Sequence[Coverage], estimates: Estimates) -> BillRefused:
    days = [day for item in covered for day in item.days]
    bill_text = f"{min(days)} to {max(days)}" if days else "no whole day"
    return BillRefused(
        f"the bill covers {bill_text}, and the report is complete from"
        f" {estimates.since:%Y-%m-%d %H:%M} to {estimates.until:%Y-%m-%d %H:%M}:"
        " they have no whole day in common",
        next_step="make the report for the bill's days, by --since and --until",
    )
