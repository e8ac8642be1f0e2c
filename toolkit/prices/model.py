"""A price, its source, and the time span in which it holds."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Final

HIGHEST_USD: Final = Decimal(100_000)
"""US dollars an hour. No instance costs a hundredth of it: a higher price is damage."""

_PLACES: Final = 12
"""Decimal places of a price. EC2 writes ten at most."""


class PriceSource(StrEnum):
    """The source of a price, the best first. The report states it for every price."""

    HISTORY = "history"
    """DescribeSpotPriceHistory: the market's price at that second."""
    CAPACITY_BLOCK = "capacity-block"
    """A capacity block's total, spread over its instances and hours."""
    RESERVED = "reserved"
    """Reserved instances, from cluster.yaml."""
    SAVINGS_PLAN = "savings-plan"
    """A savings plan's rate, from cluster.yaml."""
    CONTRACT = "contract"
    """A negotiated price, from cluster.yaml."""
    DISCOUNT = "list-with-discount"
    """The on-demand catalogue, less the discount in cluster.yaml."""
    RACK = "rack"
    """The rate of a rack's node, from cluster.yaml."""
    CATALOGUE = "list"
    """The dated on-demand catalogue, for an on-demand instance."""
    PRICE_TAG = "believed"
    """The instance's price tag: its price at launch."""
    CATALOGUE_FOR_SPOT = "list-for-spot"
    """The on-demand price for a spot instance: too high, used only if there is no better one."""
    UNKNOWN = "unknown"
    """No price at all: the amount is unknown and in no sum, and the report says so."""

    @property
    def is_guess(self) -> bool:
        """Return whether the report must warn about it."""
        return self in {PriceSource.CATALOGUE_FOR_SPOT, PriceSource.UNKNOWN}


def parse_usd(text: str, highest: Decimal = HIGHEST_USD) -> Decimal | None:
    """Return US dollars; None if the text is no price.

    Zero is none, and so are NaN, Infinity and 1e40: tags and answers hold any text.
    """
    try:
        usd = Decimal(text)
    except InvalidOperation:
        return None
    if not usd.is_finite() or not 0 < usd <= highest:
        return None
    # Checked before any arithmetic: an exact fraction of 1e-999999 has a million digits.
    exponent = usd.as_tuple().exponent
    return usd if isinstance(exponent, int) and exponent >= -_PLACES else None


@dataclass(frozen=True, slots=True)
class PriceQuery:
    """The facts of an instance that its price depends on."""

    instance_type: str
    zone: str
    spot: bool
    tag_price: Decimal | None  # US dollars an hour, from the price tag at launch
    launched_at: int
    instance_id: str = ""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Price:
    """A price of an instance."""

    usd_per_hour: Decimal
    source: PriceSource
    as_of: int  # epoch second of the source

    @property
    def is_known(self) -> bool:
        """Return whether it is a price at all."""
        return self.source is not PriceSource.UNKNOWN


@dataclass(frozen=True, slots=True)
class PriceSpan:
    """A price that holds for start ≤ t < end."""

    start: int
    end: int
    price: Price
