"""Compares a bill with our estimates, by instance and UTC day. Pure.

The gap of a line is the bill less the estimate. The gaps of the lines add up to those of
the days, and these to the total.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from toolkit.bill.amounts import ZERO, add, subtract, total

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import date
    from decimal import Decimal

    from toolkit.bill.estimates import Estimate, Estimates
    from toolkit.bill.tally import BilledDay, Tally


class Cause(StrEnum):
    """A reason why an instance's bill and its estimate differ on a day."""

    NOTHING = ""
    PRICE = "price differs"
    SECONDS = "seconds differ"
    PRICE_AND_SECONDS = "price and seconds differ"
    MISSING_IN_BILL = "missing in bill"
    MISSING_IN_LEDGER = "missing in ledger"
    CREDIT = "credit"
    ESTIMATE_UNKNOWN = "estimate unknown"
    BILL_UNREADABLE = "bill unreadable"


SAME_SECONDS: Final = 1
"""Seconds by which AWS's hours, rounded to ten places, may differ from ours."""


@dataclass(frozen=True, slots=True)
class MatchLine:
    """An instance on a day. Amounts are US dollars."""

    day: date
    instance: str
    node: str
    estimated: Decimal | None  # None: nobody knows
    billed: Decimal | None  # effective cost; None: a line of it can't be read
    credits: Decimal  # credits, refunds and discounts, which are not in `billed`
    estimated_seconds: int
    billed_seconds: Decimal | None
    pricings: tuple[str, ...]
    cause: Cause
    within_tolerance: bool

    @property
    def gap(self) -> Decimal | None:
        """Return the bill less the estimate; None if one is unknown."""
        if self.billed is None or self.estimated is None:
            return None
        return subtract(self.billed, self.estimated)


@dataclass(frozen=True, slots=True)
class MatchSum:
    """The sum of some lines. Unknown amounts are counted, and in no sum."""

    lines: int
    estimated: Decimal
    billed: Decimal
    gap: Decimal  # of the lines without an unknown amount
    credits: Decimal
    unknown: int


@dataclass(frozen=True, slots=True)
class Match:
    """The result for all days that the bill and the report cover."""

    lines: tuple[MatchLine, ...]  # by day and instance
    days: Mapping[date, MatchSum]
    total: MatchSum
    tolerance: Decimal
    wide_days: tuple[date, ...]  # whose gaps are within tolerance line by line, and not in sum
    days_not_compared: Mapping[date, Decimal]  # billed, on days that one of them lacks

    @property
    def is_within_tolerance(self) -> bool:
        """Return whether the gap of every line and day is small."""
        return all(line.within_tolerance for line in self.lines) and not self.wide_days


def match(bill: Tally, estimates: Estimates, days: Collection[date], tolerance: Decimal) -> Match:
    """Return the match of the given days, which both sides must cover."""
    keys = {
        key
        for key in {*bill.instances, *estimates.by_day, *_unreadable_keys(bill)}
        if key[1] in days
    }
    lines = tuple(
        _line(bill, estimates, instance, day, tolerance)
        for day, instance in sorted((day, instance) for instance, day in keys)
    )
    lines_by_day: dict[date, list[MatchLine]] = {day: [] for day in sorted(days)}
    for line in lines:
        lines_by_day[line.day].append(line)
    return Match(
        lines=lines,
        days={day: _sum(day_lines) for day, day_lines in lines_by_day.items()},
        total=_sum(lines),
        tolerance=tolerance,
        wide_days=tuple(
            day for day, day_lines in lines_by_day.items() if _is_wide(day_lines, tolerance)
        ),
        days_not_compared=_not_compared(bill, days),
    )


def _is_wide(lines: Sequence[MatchLine], tolerance: Decimal) -> bool:
    """Return whether small gaps of a day add up to much."""
    gaps = [line.gap for line in lines]
    explained = [line.credits for line in lines if line.cause is Cause.CREDIT]
    gap = total([*(gap for gap in gaps if gap is not None), *explained])
    return abs(gap) > tolerance and all(line.within_tolerance for line in lines)


def _unreadable_keys(bill: Tally) -> set[tuple[str, date]]:
    return {
        (resource, day)
        for resource, day in bill.unreadable
        if day is not None and resource.startswith("i-")
    }


def _line(
    bill: Tally, estimates: Estimates, instance: str, day: date, tolerance: Decimal
) -> MatchLine:
    billed_day = bill.instances.get((instance, day))
    estimate = estimates.by_day.get((instance, day))
    credited = bill.credits.get((instance, day), ZERO)
    billed = ZERO if billed_day is None else billed_day.usd
    is_unreadable = (instance, day) in bill.unreadable
    cause = _cause(billed_day, estimate, credited, tolerance, in_ledger=instance in estimates.nodes)
    line = MatchLine(
        day=day,
        instance=instance,
        node=estimates.nodes.get(instance, ""),
        estimated=ZERO if estimate is None else estimate.usd,
        billed=None if is_unreadable else billed,
        credits=credited,
        estimated_seconds=0 if estimate is None else estimate.seconds,
        billed_seconds=ZERO if billed_day is None else billed_day.seconds,
        pricings=() if billed_day is None else tuple(sorted(billed_day.pricings)),
        cause=Cause.BILL_UNREADABLE if is_unreadable else cause,
        within_tolerance=False,
    )
    return _judged(line, tolerance)


def _judged(line: MatchLine, tolerance: Decimal) -> MatchLine:
    """Return the line, judged. An unknown gap is above any tolerance."""
    gap = line.gap
    within = gap is not None and (abs(gap) <= tolerance or line.cause is Cause.CREDIT)
    return replace(line, within_tolerance=within)


def _cause(
    billed_day: BilledDay | None,
    estimate: Estimate | None,
    credited: Decimal,
    tolerance: Decimal,
    *,
    in_ledger: bool,
) -> Cause:
    if estimate is not None and estimate.usd is None:
        return Cause.ESTIMATE_UNKNOWN
    if not in_ledger:
        return Cause.MISSING_IN_LEDGER
    billed = ZERO if billed_day is None else billed_day.usd
    estimated = ZERO if estimate is None or estimate.usd is None else estimate.usd
    gap = subtract(billed, estimated)
    if gap == ZERO:
        return Cause.NOTHING
    if credited != ZERO and abs(add(gap, credited)) <= min(tolerance, abs(gap)):
        return Cause.CREDIT
    if billed_day is None or estimate is None:
        return Cause.MISSING_IN_BILL if billed_day is None else Cause.SECONDS
    return _price_or_seconds(billed_day, estimate.seconds, estimated, tolerance)


def _price_or_seconds(
    billed_day: BilledDay, seconds: int, estimated: Decimal, tolerance: Decimal
) -> Cause:
    """Return the one that makes up the gap, or both."""
    if billed_day.seconds is None:
        return Cause.PRICE_AND_SECONDS
    more_seconds = Fraction(billed_day.seconds) - seconds
    if abs(more_seconds) <= SAME_SECONDS:
        return Cause.PRICE
    gap = Fraction(billed_day.usd) - Fraction(estimated)
    price = Fraction(estimated) / seconds if seconds else Fraction(0)
    by_seconds = more_seconds * price
    # A price per second times a second of rounding is no reason to blame the price.
    if abs(gap - by_seconds) <= min(Fraction(tolerance), abs(gap) / 100):
        return Cause.SECONDS
    return Cause.PRICE_AND_SECONDS


def _sum(lines: Sequence[MatchLine]) -> MatchSum:
    return MatchSum(
        lines=len(lines),
        estimated=_known(line.estimated for line in lines),
        billed=_known(line.billed for line in lines),
        gap=_known(line.gap for line in lines),
        credits=total(line.credits for line in lines),
        unknown=sum(line.gap is None for line in lines),
    )


def _known(amounts: Iterable[Decimal | None]) -> Decimal:
    return total(amount for amount in amounts if amount is not None)


def _not_compared(bill: Tally, days: Collection[date]) -> Mapping[date, Decimal]:
    sums: dict[date, Decimal] = {}
    for (_, day), billed in sorted(bill.instances.items(), key=lambda item: item[0][1]):
        if day not in days:
            sums[day] = add(sums.get(day, ZERO), billed.usd)
    return sums
