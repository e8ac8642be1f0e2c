"""An instance's cost, divided over the UTC days of its bill.

AWS writes its bill by hours and days, so a report that is held to a bill needs days. The
parts are whole micro-dollars, and they add up to the cost (largest remainder).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final

from toolkit.accounting.money import apportion, exact_amount, exact_sum

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction

    from toolkit.prices import PriceSpan

DAY: Final = 86_400
"""Seconds of a UTC day. The epoch counts no leap seconds."""


@dataclass(frozen=True, slots=True)
class DayCost:
    """The cost of one instance on one UTC day."""

    day: date
    seconds: int  # billed
    micro: int  # micro-dollars, refunds subtracted
    price_known: bool  # False: a part of the amount is unknown, and in no sum


@dataclass(frozen=True, slots=True)
class DayPart:
    """The exact cost of one instance on one UTC day."""

    day: date
    seconds: int  # billed
    micro: Fraction  # micro-dollars, before a refund
    price_known: bool

    def joined(self, other: DayPart) -> DayPart:
        """Return both parts of one day."""
        return DayPart(
            self.day,
            self.seconds + other.seconds,
            self.micro + other.micro,
            self.price_known and other.price_known,
        )


def day_parts(spans: Sequence[PriceSpan]) -> tuple[DayPart, ...]:
    """Return the exact costs of the days."""
    seconds: dict[date, int] = defaultdict(int)
    weights: dict[date, list[Fraction]] = defaultdict(list)
    unknown_days = set()
    for span in spans:
        for start, end in by_day(span.start, span.end):
            day, day_seconds = day_of(start), end - start
            seconds[day] += day_seconds
            weights[day].append(exact_amount(span.price.usd_per_hour, day_seconds))
            if not span.price.is_known:
                unknown_days.add(day)
    return tuple(
        DayPart(day, seconds[day], exact_sum(own), day not in unknown_days)
        for day, own in weights.items()
    )


def day_costs_of(parts: Sequence[DayPart], gross: int, refund: int) -> tuple[DayCost, ...]:
    """Divide an instance's cost over its days."""
    if not parts:
        return ()
    weights = [part.micro for part in parts]
    return tuple(
        DayCost(part.day, part.seconds, cost - refunded, part.price_known)
        for part, cost, refunded in zip(
            parts, apportion(gross, weights), apportion(-refund, weights), strict=True
        )
    )


def day_of(second: int) -> date:
    """Return the UTC day of an epoch second."""
    return datetime.fromtimestamp(second, UTC).date()


def by_day(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a time, each within one UTC day."""
    while start < end:
        midnight = (start // DAY + 1) * DAY
        yield start, min(midnight, end)
        start = midnight
