"""A price, its source, and the time span in which it holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal


class PriceSource(StrEnum):
    """The source of a price, the best first. The report states it for every price."""

    HISTORY = "history"
    """DescribeSpotPriceHistory: the market's price at that second."""
    CATALOGUE = "list"
    """The dated on-demand catalogue, for an on-demand instance."""
    PRICE_TAG = "believed"
    """The instance's price tag: its price at launch."""
    CATALOGUE_FOR_SPOT = "list-for-spot"
    """The on-demand price for a spot instance: too high, used only if there is no better one."""
    UNKNOWN = "unknown"
    """No price at all: the amount is 0 and the report says so."""

    @property
    def is_guess(self) -> bool:
        """Return whether the report must warn about it."""
        return self in {PriceSource.CATALOGUE_FOR_SPOT, PriceSource.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Price:
    """A price of an instance."""

    usd_per_hour: Decimal
    source: PriceSource
    as_of: int  # epoch second of the source


@dataclass(frozen=True, slots=True)
class PriceSpan:
    """A price that holds for start ≤ t < end."""

    start: int
    end: int
    price: Price
