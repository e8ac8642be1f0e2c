"""The invoice of the local cloud: line items by hour or day, as AWS would bill them.

Rounding: a line's cost has ten decimal places, as in the Cost and Usage Report. A total is the
sum of its lines.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from typing import TYPE_CHECKING

from toolkit.local.billing.usage import HOUR, Use, uses
from toolkit.local.billing.usage_log import Kind, UsageEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from toolkit.local.billing.rates import Rates

DAY = 24 * HOUR
COST_PLACES = Decimal("0.0000000001")
QUANTITY_PLACES = Decimal("0.0000000001")


class Granularity(IntEnum):
    """The longest time of a line item, in seconds. It begins at UTC's full hours and days."""

    HOURLY = HOUR
    DAILY = DAY


@dataclass(frozen=True, slots=True)
class LineItem:
    """The use of one resource at one rate within one hour or day."""

    resource_id: str
    kind: Kind
    type: str
    market: str
    region: str
    zone: str
    tags: Mapping[str, str]
    start: int
    end: int
    quantity: Decimal  # hours of an instance, GB-months of storage
    rate: Decimal  # US dollars for one of the quantity; 0 if not charged
    list_rate: Decimal  # AWS's list price for the same
    cost: Decimal  # US dollars

    @property
    def seconds(self) -> int:
        """Return the billed seconds."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Invoice:
    """All line items of a time, by resource and time."""

    since: int
    until: int
    lines: tuple[LineItem, ...]

    @property
    def total(self) -> Decimal:
        """Return the sum of all lines."""
        return sum((line.cost for line in self.lines), Decimal(0))

    def by_resource(self) -> dict[str, Decimal]:
        """Return the sum of each resource, free ones too."""
        return {
            lines[0].resource_id: sum((line.cost for line in lines), Decimal(0))
            for lines in self.lines_by_resource()
        }

    def lines_by_resource(self) -> list[list[LineItem]]:
        """Return the lines of each resource."""
        lines: dict[str, list[LineItem]] = defaultdict(list)
        for line in self.lines:
            lines[line.resource_id].append(line)
        return list(lines.values())


def make(
    events: Iterable[UsageEvent],
    rates: Rates,
    *,
    since: int,
    until: int,
    granularity: Granularity = Granularity.HOURLY,
) -> Invoice:
    """Bill what was used within since ≤ t < until.

    `until` is now at the latest.
    """
    lines = [line for use in uses(events) for line in _lines(use, rates, since, until, granularity)]
    return Invoice(since, until, tuple(lines))


def _lines(
    use: Use, rates: Rates, since: int, until: int, granularity: Granularity
) -> Iterator[LineItem]:
    """Yield a use's lines.

    A spot price begins with each hour of the instance, a line item with each hour of UTC.
    """
    position, end = use.start, use.billed_end(until)
    while position < min(end, until):
        instance_hour = use.start + (position - use.start) // HOUR * HOUR
        line_end = min(end, position // granularity * granularity + granularity)
        if use.event.market == "spot":
            line_end = min(line_end, instance_hour + HOUR)
        start, stop = max(position, since), min(line_end, until)
        if start < stop:
            yield _line(use, rates, instance_hour, start, stop)
        position = line_end


def _line(use: Use, rates: Rates, instance_hour: int, start: int, end: int) -> LineItem:
    event = use.event
    rate = rates.price(event, instance_hour)
    if event.kind is Kind.INSTANCE:
        seconds_of_unit, units = HOUR, 1
    else:
        seconds_of_unit, units = _seconds_of_month(start), event.gib
    used = Decimal(units * (end - start))
    cost = Decimal(0) if use.free else (used * rate / seconds_of_unit).quantize(COST_PLACES)
    return LineItem(
        resource_id=event.resource_id,
        kind=event.kind,
        type=event.type,
        market=event.market,
        region=event.region,
        zone=event.zone,
        tags=use.tags,
        start=start,
        end=end,
        quantity=(used / seconds_of_unit).quantize(QUANTITY_PLACES),
        rate=Decimal(0) if use.free else rate,
        list_rate=rates.list_price(event),
        cost=cost,
    )


def _seconds_of_month(at: int) -> int:
    """Return the seconds of the month in UTC.

    AWS's example has a "30 day month": https://aws.amazon.com/ebs/pricing/
    """
    begin = datetime.fromtimestamp(at, UTC).replace(day=1, hour=0, minute=0, second=0)
    following = (begin + timedelta(days=32)).replace(day=1)
    return int((following - begin).total_seconds())
