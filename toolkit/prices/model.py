"""A price, where it is from, and the span of time it holds for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal


class PriceSource(StrEnum):
    """Where a price comes from, the best first. It goes with every cent of the report."""

    HISTORY = "history"
    """DescribeSpotPriceHistory: what the market said at that second."""
    LIST = "list"
    """The dated on-demand catalogue, for an on-demand instance."""
    BELIEVED = "believed"
    """What the cluster believed at launch, kept in the instance's tag."""
    LIST_FOR_SPOT = "list-for-spot"
    """The on-demand price for a spot instance: too high, and only for want of anything better."""
    UNKNOWN = "unknown"
    """No price at all: the amount is 0 and the report says so."""

    @property
    def is_guess(self) -> bool:
        """Whether the report must warn about it."""
        return self in {PriceSource.LIST_FOR_SPOT, PriceSource.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars an hour. `as_of` is the second (epoch) at which the source said so."""

    usd_per_hour: Decimal
    source: PriceSource
    as_of: int


@dataclass(frozen=True, slots=True)
class PriceSpan:
    """One price that holds for start ≤ t < end."""

    start: int
    end: int
    price: Price
