"""Phrases that the terminal and the HTML report share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from toolkit.prices import PriceSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.accounting.report import Report
    from toolkit.prices import Price

_SOURCES = {
    PriceSource.HISTORY: "spot price history",
    PriceSource.CATALOGUE: "on-demand catalogue of {day}",
    PriceSource.PRICE_TAG: "price tag from launch",
    PriceSource.CATALOGUE_FOR_SPOT: "on-demand catalogue of {day}, without spot history",
    PriceSource.UNKNOWN: "unknown",
}


def span(since: int, until: int) -> str:
    """Return a time span in UTC; a shared day is stated once."""
    low, high = (datetime.fromtimestamp(at, UTC) for at in (since, until))
    same_day = low.date() == high.date()
    end = high.strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M")
    return f"{low:%Y-%m-%d %H:%M} to {end} UTC"


def moment(second: int | None) -> str:
    """Return a second in UTC, for a sentence."""
    if second is None:
        return "never"
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")


def price_range(prices: Sequence[Price]) -> str:
    """Return the price, or the lowest and highest; `?` marks a guess."""
    known_prices = [price.usd_per_hour for price in prices if price.is_known]
    if not known_prices:
        return "unknown"
    low, high = min(known_prices), max(known_prices)
    mark = "?" if any(price.source.is_guess for price in prices) else ""
    text = f"{low.normalize():f}" if low == high else f"{low.normalize():f}…{high.normalize():f}"
    return f"{text}{mark}"


def price_sources(report: Report) -> str:
    """Return the sources of the prices, with their numbers of instances."""
    counts: dict[str, int] = {}
    for cost in report.costs:
        for source_text in dict.fromkeys(_source(price) for price in cost.prices):
            counts[source_text] = counts.get(source_text, 0) + 1
    return ", ".join(f"{source_text} ({count})" for source_text, count in counts.items())


def _source(price: Price) -> str:
    day = datetime.fromtimestamp(price.as_of, UTC).strftime("%Y-%m-%d")
    return _SOURCES[price.source].format(day=day)
