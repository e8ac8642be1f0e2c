"""Periods that people name: a month, a quarter, a year, or days. All days are UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from toolkit.accounting.allocation import Window
from toolkit.accounting.errors import PeriodInvalid

_EXAMPLES = "2026-11, 2026-Q4, 2026, 2026-11-01..2026-11-15 or last-month"
_MONTH = re.compile(r"(\d{4})-(\d{2})", re.ASCII)
_QUARTER = re.compile(r"(\d{4})-[Qq]([1-4])", re.ASCII)
_YEAR = re.compile(r"\d{4}", re.ASCII)
_MONTHS_OF_A_QUARTER = 3
_MONTHS_OF_A_YEAR = 12
_EARLIEST = date(2006, 1, 1)  # EC2's first year


@dataclass(frozen=True, slots=True)
class Period:
    """Whole days that follow each other."""

    name: str
    first: date
    last: date

    @property
    def window(self) -> Window:
        """Return the period's seconds."""
        return Window(_second(self.first), _second(self.last + timedelta(days=1)))

    @property
    def is_month(self) -> bool:
        """Return whether its days are one month, whole, however it was named."""
        month = month_of(self.first)
        return (self.first, self.last) == (month.first, month.last)

    def is_over(self, now: int) -> bool:
        """Return whether its last second is past."""
        return self.window.until <= now


def month_of(day: date) -> Period:
    """Return the month of a day."""
    return Period(f"{day:%Y-%m}", day.replace(day=1), _last(day.year, day.month))


def month_named(name: str) -> Period:
    """Return the month of a name such as 2026-11."""
    return month_of(date.fromisoformat(f"{name}-01"))


def month_before(day: date) -> Period:
    """Return the month before that of a day."""
    return month_of(day.replace(day=1) - timedelta(days=1))


def parse(text: str, today: date) -> Period:
    """Return the period of a name. Raises PeriodInvalid.

    A period in the future is refused, one that goes on is not.
    """
    try:
        period = _parsed(text, today)
    except (ValueError, OverflowError):
        period = None
    if period is None or period.first < _EARLIEST:
        raise PeriodInvalid(f"{text!r} is no period", next_step=f"write {_EXAMPLES}")
    if period.last < period.first:
        raise PeriodInvalid(
            f"{text} ends before it begins", next_step="write the earlier day first"
        )
    if period.first > today:
        raise PeriodInvalid(
            f"{text} is in the future: it begins on {period.first}, and today is {today} (UTC)",
            next_step="name a period that has begun",
        )
    return period


def _parsed(text: str, today: date) -> Period | None:
    if text == "last-month":
        return month_before(today)
    if match := _MONTH.fullmatch(text):
        return month_of(date(int(match[1]), int(match[2]), 1))
    if match := _QUARTER.fullmatch(text):
        year, last = int(match[1]), int(match[2]) * _MONTHS_OF_A_QUARTER
        return Period(f"{year}-Q{match[2]}", date(year, last - 2, 1), _last(year, last))
    if _YEAR.fullmatch(text):
        return Period(text, date(int(text), 1, 1), date(int(text), 12, 31))
    first, dots, last_day = text.partition("..")
    if not dots:
        return None
    days = (date.fromisoformat(first), date.fromisoformat(last_day))
    return Period(f"{days[0]}..{days[1]}", *days)


def _last(year: int, month: int) -> date:
    next_month = month % _MONTHS_OF_A_YEAR + 1
    next_year = year + month // _MONTHS_OF_A_YEAR
    return date(next_year, next_month, 1) - timedelta(days=1)


def _second(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
