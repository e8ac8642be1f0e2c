"""Charges, divided over the UTC days of a report.

A charge is one amount for the whole report, and plots, months and FOCUS need days. It is divided
by the seconds of its time on each day, at the day's average price of its instance.
The parts of a charge add up to it, to the micro-dollar.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Component
from toolkit.accounting.days import DAY, by_day, day_of
from toolkit.accounting.money import apportion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import date

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.charges import Charge, InstanceCost
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.report import Report

Span = tuple[int, int]
"""The first second, and the one behind the last."""

_BEFORE_START = frozenset({Component.BOOT, Component.WAIT})
_BEHIND_END = frozenset({Component.IDLE_GAP, Component.IDLE_TAIL, Component.MINIMUM})
_NO_PRICE = Fraction(1)


@dataclass(frozen=True, slots=True)
class DayCharge:
    """The part of a charge on one UTC day."""

    charge: Charge
    start: int  # the day's first second in the report
    end: int
    micro: int
    seconds: Fraction

    @property
    def day(self) -> date:
        """Return the day."""
        return day_of(self.start)


def charges_by_day(report: Report) -> Iterator[DayCharge]:
    """Yield the parts of every charge, in the order of the report."""
    for cost in report.costs:
        rates = _rates(cost)
        instance = report.instances[cost.instance_id]
        for charge in cost.charges:
            yield from _parts(charge, _span(charge, report, instance), report, rates)
    # A share is of the report's whole time, whenever its job ran: so each day's shares sum to zero.
    whole = (report.window.since, report.window.until)
    for share in report.shares:
        yield from _parts(share, whole, report, {})


def run_span(attempt: Attempt, report: Report) -> Span:
    """Return an attempt's time within the report; it may be empty."""
    since, until = report.window.since, report.window.until
    start = until if attempt.started is None else attempt.started
    end = until if attempt.ended is None else attempt.ended
    return _clipped((start, end), (since, until))


def _rates(cost: InstanceCost) -> dict[date, Fraction]:
    """Return the average price of a second on each day, in micro-dollars."""
    return {
        day.day: Fraction(day.micro, day.seconds)
        for day in cost.days
        if day.seconds and day.micro > 0
    }


def _span(charge: Charge, report: Report, instance: Instance) -> Span:
    """Return the time of a charge, at least a second."""
    window = (report.window.since, report.window.until)
    ended = report.window.until if instance.ended is None else instance.ended
    life = _clipped((instance.billed_from, ended), window)
    if life[0] >= life[1]:  # a minimum charge reaches into the window, or an end was never seen
        first = min(max(life[0], window[0]), window[1] - 1)
        life = (first, first + 1)
    if charge.attempt is None:
        return life
    span = _clipped(_of_attempt(charge, report.attempts[charge.attempt], life), life)
    return span if span[0] < span[1] else life


def _of_attempt(charge: Charge, attempt: Attempt, life: Span) -> Span:
    """Return the time in which an attempt caused a charge."""
    start = life[1] if attempt.started is None else attempt.started
    end = life[1] if attempt.ended is None else attempt.ended
    lost_from = attempt.lost_from()
    length = -(-charge.seconds.numerator // charge.seconds.denominator)
    match charge.component:
        case Component.WORK:
            return start, end if lost_from is None else lost_from
        case Component.LOST:
            return start if lost_from is None else lost_from, end
        case component if component in _BEFORE_START:
            return start - length, start
        case component if component in _BEHIND_END:
            return end, end + length
    return life


def _clipped(span: Span, bounds: Span) -> Span:
    return max(span[0], bounds[0]), min(span[1], bounds[1])


def _parts(
    charge: Charge, span: Span, report: Report, rates: Mapping[date, Fraction]
) -> Iterator[DayCharge]:
    pieces = list(by_day(*span))
    if len(pieces) == 1:  # most charges
        yield _part(charge, report, pieces[0], charge.micro, charge.seconds)
        return
    weights = [
        (high - low) * (rates.get(day_of(low), _NO_PRICE) if rates else _NO_PRICE)
        for low, high in pieces
    ]
    length = span[1] - span[0]
    for piece, micro in zip(pieces, apportion(charge.micro, weights), strict=True):
        yield _part(charge, report, piece, micro, charge.seconds * (piece[1] - piece[0]) / length)


def _part(charge: Charge, report: Report, piece: Span, micro: int, seconds: Fraction) -> DayCharge:
    first = piece[0] // DAY * DAY
    start, end = _clipped((first, first + DAY), (report.window.since, report.window.until))
    return DayCharge(charge, start, end, micro, seconds)
