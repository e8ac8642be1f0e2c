"""Spot price history as step functions, one for each instance type and zone."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from toolkit.prices.model import Price, PriceSource, PriceSpan, parse_usd

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from decimal import Decimal

    from mypy_boto3_ec2 import EC2Client


@dataclass(frozen=True, slots=True)
class SpotHistory:
    """Price changes in time order; a price holds until the next change.

    A price of None is one that could not be read. Nothing is known from it to the next.
    """

    changes: Mapping[tuple[str, str], tuple[tuple[int, Decimal | None], ...]] = field(
        default_factory=dict
    )

    @classmethod
    def from_points(cls, points: Iterable[tuple[str, str, int, Decimal | None]]) -> SpotHistory:
        """Build from (type, zone, second, price) in any order.

        The later of two points at the same second wins.
        """
        prices_by_second: dict[tuple[str, str], dict[int, Decimal | None]] = defaultdict(dict)
        for instance_type, zone, second, usd in points:
            prices_by_second[instance_type, zone][second] = usd
        return cls(
            {
                key: tuple(sorted(prices.items(), key=lambda change: change[0]))
                for key, prices in prices_by_second.items()
            }
        )

    def spans(self, instance_type: str, zone: str, start: int, end: int) -> list[PriceSpan]:
        """Return the known prices within start ≤ t < end.

        Time without a known price is left out.
        """
        changes = self.changes.get((instance_type, zone), ())
        first_index = max(bisect_right(changes, start, key=lambda change: change[0]) - 1, 0)
        spans = []
        for index in range(first_index, len(changes)):
            change_second, usd = changes[index]
            next_change = changes[index + 1][0] if index + 1 < len(changes) else end
            low, high = max(change_second, start), min(next_change, end)
            if change_second >= end:
                break
            if low < high and usd is not None:
                spans.append(PriceSpan(low, high, Price(usd, PriceSource.HISTORY, change_second)))
        return spans


def read_history(ec2: EC2Client, types: Collection[str], start: int, end: int) -> SpotHistory:
    """Read the price changes from start to end.

    EC2 adds the last change before start itself. It keeps 90 days: older time has no
    history here, and its price has another source and tag.
    """
    if not types:
        return SpotHistory()
    from slurmplugins.cloud.spot_history import PRODUCT  # it brings the client of AWS

    pages = ec2.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=sorted(types),  # type: ignore[arg-type]  # the stubs list types of one day
        ProductDescriptions=[PRODUCT],
        StartTime=datetime.fromtimestamp(start, UTC),
        EndTime=datetime.fromtimestamp(end, UTC),
    )
    return SpotHistory.from_points(
        (
            str(point["InstanceType"]),
            point["AvailabilityZone"],
            int(point["Timestamp"].timestamp()),
            parse_usd(point["SpotPrice"]),
        )
        for page in pages
        for point in page["SpotPriceHistory"]
    )
