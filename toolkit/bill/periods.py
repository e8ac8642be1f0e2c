"""The days that a bill covers, and the closed billing periods. Pure.

AWS leaves `bill_invoice_id` blank until a month's report is final:
https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2-bill.html
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

from toolkit.bill.errors import BillRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.bill.tally import BillPeriod


@dataclass(frozen=True, slots=True)
class Coverage:
    """The days that a bill covers in one billing period."""

    month: date  # its first day
    days: tuple[date, ...]
    closed: bool


def coverage(
    periods: Mapping[date, BillPeriod], today: date, *, final: bool
) -> tuple[Coverage, ...]:
    """Return the covered days of each billing period.

    A closed one covers its month. An open one covers the days before the last in it, on
    which AWS may still add lines. `final` closes months that are over. Raises BillRefused
    if one of them is not.
    """
    return tuple(_covered(month, period, today, final) for month, period in periods.items())


def _covered(month: date, period: BillPeriod, today: date, final: bool) -> Coverage:
    end = next_month(month)
    is_over = end <= today
    if final and not is_over:
        raise BillRefused(
            f"{month:%Y-%m} is not over, so its bill can't be final",
            next_step="leave --final away: the days before the last one are reconciled",
        )
    closed = is_over and (final or not period.lines_without_invoice)
    until = end if closed else min(period.last_day, end, today)
    count = max((until - month).days, 0)
    return Coverage(month, tuple(month + timedelta(days=number) for number in range(count)), closed)


def next_month(month: date) -> date:
    """Return the first day of the month after."""
    return date(month.year + month.month // 12, month.month % 12 + 1, 1)
