"""The days of the record, and the entries that a new bill adds. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from toolkit.accounting.bill_status import BillStatus, Correction
from toolkit.bill.amounts import ZERO, subtract, total
from toolkit.bill.record import BillEntry, CorrectionEntry, DayEntry, DayStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import date
    from decimal import Decimal

    from toolkit.bill.match import Match
    from toolkit.bill.record import Entry


@dataclass(frozen=True, slots=True)
class RecordedDay:
    """A day as the record has it, corrections added."""

    status: DayStatus
    billed: Mapping[str, Decimal]  # by instance id, without zeros

    @property
    def usd(self) -> Decimal:
        """Return what was billed for all instances."""
        return total(self.billed.values())


@dataclass(frozen=True, slots=True)
class History:
    """The record of one cluster."""

    days: Mapping[date, RecordedDay]
    corrections: tuple[CorrectionEntry, ...]
    bills_by_month: Mapping[date, tuple[str, ...]]  # hashes, the oldest first

    def status(self, day: date) -> DayStatus:
        """Return a day's status; a day without a bill is estimated."""
        recorded = self.days.get(day)
        return DayStatus.ESTIMATED if recorded is None else recorded.status

    def replaced_months(self, bill: str, months: Iterable[date]) -> tuple[date, ...]:
        """Return the months for which a later bill has followed this one."""
        return tuple(
            month
            for month in months
            if bill in (bills := self.bills_by_month.get(month, ())) and bills[-1] != bill
        )


NO_BILLS = History({}, (), {})
"""For a report that needs no status of its days, or gets it later."""


def history(entries: Iterable[Entry]) -> History:
    """Return the record's meaning. Entries are in the order of the file."""
    days: dict[date, RecordedDay] = {}
    corrections: list[CorrectionEntry] = []
    bills: dict[date, tuple[str, ...]] = {}
    for entry in entries:
        match entry:
            case BillEntry():
                for month in entry.months:
                    bills[month] = (*bills.get(month, ()), entry.bill)
            case DayEntry():
                days[entry.day] = RecordedDay(entry.status, _without_zeros(entry.billed))
            case CorrectionEntry():
                corrections.append(entry)
                known = days.get(entry.day, RecordedDay(DayStatus.FINAL, {}))
                billed = {**known.billed, entry.instance: entry.new}
                days[entry.day] = RecordedDay(known.status, _without_zeros(billed))
    return History(days, tuple(corrections), bills)


def bill_status(known: History, since: date, until: date) -> BillStatus:
    """Return the status of the days from `since` to `until`, both included."""
    span = [since + timedelta(days=number) for number in range((until - since).days + 1)]
    counts = Counter(known.status(day) for day in span)
    return BillStatus(
        estimated=counts[DayStatus.ESTIMATED],
        reconciled=counts[DayStatus.RECONCILED],
        final=counts[DayStatus.FINAL],
        corrections=tuple(
            Correction(item.day, item.instance, item.old, item.new, item.difference, item.at)
            for item in known.corrections
            if since <= item.day <= until
        ),
    )


@dataclass(frozen=True, slots=True)
class NewBill:
    """A bill that was held to the report."""

    bill: str
    files: tuple[str, ...]
    months: tuple[date, ...]
    final_days: Collection[date]  # of closed months
    at: int


def new_entries(known: History, bill: NewBill, result: Match) -> tuple[Entry, ...]:
    """Return the entries of a bill; none if they are there already.

    A month for which a later bill was read is left alone: an old file, given again, must
    not undo a newer one. A day with an unreadable line of ours stays as it is.
    """
    replaced = set(known.replaced_months(bill.bill, bill.months))
    entries: list[Entry] = []
    for day in result.days:
        if day.replace(day=1) not in replaced:
            entries += _day_entries(known, bill, result, day)
    months = [month for month in bill.months if month not in replaced]
    unread = [month for month in months if known.bills_by_month.get(month, ("",))[-1] != bill.bill]
    # First: a run that is killed after this line goes on where it stopped.
    return (*_bill_entry(bill, unread), *entries)


def _bill_entry(bill: NewBill, months: Sequence[date]) -> tuple[BillEntry, ...]:
    if not months:
        return ()
    return (BillEntry(bill.bill, bill.files, tuple(months), bill.at),)


def _day_entries(known: History, bill: NewBill, result: Match, day: date) -> list[Entry]:
    lines = [line for line in result.lines if line.day == day]
    if any(line.billed is None for line in lines):
        return []
    billed = _without_zeros({line.instance: line.billed or ZERO for line in lines})
    recorded = known.days.get(day)
    if recorded is not None and recorded.status is DayStatus.FINAL:
        return list(_corrections(recorded, billed, bill, day))
    status = DayStatus.FINAL if day in bill.final_days else DayStatus.RECONCILED
    if recorded == RecordedDay(status, billed):
        return []
    estimated = result.days[day].estimated
    return [DayEntry(day, status, estimated, billed, bill.bill, bill.at)]


def _corrections(
    recorded: RecordedDay, billed: Mapping[str, Decimal], bill: NewBill, day: date
) -> Iterable[CorrectionEntry]:
    for instance in sorted({*recorded.billed, *billed}):
        old, new = recorded.billed.get(instance, ZERO), billed.get(instance, ZERO)
        if old != new:
            yield CorrectionEntry(day, instance, old, new, subtract(new, old), bill.bill, bill.at)


def _without_zeros(billed: Mapping[str, Decimal]) -> dict[str, Decimal]:
    return {name: usd for name, usd in billed.items() if usd != ZERO}
