"""The period of an account budget that a moment lies in. Pure: no input or output."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from slurmplugins.config.budgets import PeriodKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurmplugins.config.budgets import Budget

DAY: Final = 86_400
_MONTHS: Final = {PeriodKind.MONTH: 1, PeriodKind.QUARTER: 3, PeriodKind.YEAR: 12}


@dataclass(frozen=True, slots=True)
class Period:
    """A time in epoch seconds; the end is not in it."""

    begin: float
    end: float


def period_of(budget: Budget, now: float) -> Period:
    """Return the budget's period at that moment.

    A grant has one period, also before and after it.
    """
    if budget.kind is PeriodKind.GRANT:
        return Period(budget.since, budget.until)
    at = datetime.fromtimestamp(now, UTC)
    months = _MONTHS[budget.kind]
    first = (at.month - 1) // months * months + 1
    begin = datetime(at.year, first, 1, tzinfo=UTC)
    after = (begin + timedelta(days=31 * months)).replace(day=1)
    return Period(begin.timestamp(), after.timestamp())


def day_of(at: float) -> str:
    """Return the day in UTC, such as 2026-11-26."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def days(begin: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield the parts of a time that lie in one day each."""
    while begin < end:
        midnight = (begin // DAY + 1) * DAY
        yield begin, min(midnight, end)
        begin = midnight
