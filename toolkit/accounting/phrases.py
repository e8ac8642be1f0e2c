"""Phrases that the terminal and the HTML report share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from toolkit.accounting.cost_policy import Payer
from toolkit.accounting.instances import Kind
from toolkit.accounting.money import usd
from toolkit.prices import PriceSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from toolkit.accounting.charges import ChargePrices, InstanceCost
    from toolkit.accounting.report import Report
    from toolkit.prices import Price

_SOURCES = {
    PriceSource.HISTORY: "spot price history",
    PriceSource.CATALOGUE: "on-demand catalogue of {day}",
    PriceSource.PRICE_TAG: "price tag from launch",
    PriceSource.CATALOGUE_FOR_SPOT: "on-demand catalogue of {day}, without spot history",
    PriceSource.CAPACITY_BLOCK: "capacity block of {day}",
    PriceSource.RESERVED: "reserved instances of {day}",
    PriceSource.SAVINGS_PLAN: "savings plan of {day}",
    PriceSource.CONTRACT: "contract of {day}",
    PriceSource.DISCOUNT: "on-demand catalogue of {day}, with discount",
    PriceSource.RACK: "rack rate of {day}",
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


def price_text(cost: InstanceCost) -> str:
    """Return the price of an hour; storage and traffic have none."""
    return price_range(cost.prices) if cost.prices or cost.has_unknown else ""


def price_sources(report: Report) -> str:
    """Return the sources of the prices, with their numbers of instances."""
    counts: dict[str, int] = {}
    for cost in report.costs:
        for source_text in dict.fromkeys(_source(price) for price in cost.prices):
            counts[source_text] = counts.get(source_text, 0) + 1
    return ", ".join(f"{source_text} ({count})" for source_text, count in counts.items())


def sources_text(sources: Iterable[PriceSource]) -> str:
    """Return the sources of an amount, the best first."""
    known = frozenset(sources)
    return ", ".join(source.value for source in PriceSource if source in known)


def day(second: int) -> str:
    """Return the day of a second, in UTC."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d")


def prices_text(prices: ChargePrices | None) -> str:
    """Return the sources of an amount's prices, and the oldest's day."""
    return f"{sources_text(prices.sources)}, {day(prices.as_of)}" if prices else ""


def payers_text(report: Report) -> str:
    """Return the payers, each with what it pays for."""
    keys_by_payer: dict[str, list[str]] = {}
    for key, payer in report.cost_policy.payers().items():
        if payer != Payer.HIDDEN:
            keys_by_payer.setdefault(payer, []).append(key.replace("_", " "))
    parts = [f"{payer}: {', '.join(keys)}" for payer, keys in keys_by_payer.items()]
    return "; ".join(parts)


def racks_text(report: Report) -> str:
    """Return the part of the sum that is racks'; "" without racks."""
    if not report.has_racks:
        return ""
    return (
        f"racks: {usd(report.racks_net):,.6f} USD of it, amortised: a job there costs nothing"
        f" extra; all else: {usd(report.net - report.racks_net):,.6f} USD"
    )


def left_out(report: Report) -> str:
    """Return what the sum leaves out."""
    kinds = {item.kind for item in report.instances.values()}
    others = {"storage": Kind.STORAGE, "transfer": Kind.NETWORK}
    words = ["taxes", *(word for word, kind in others.items() if kind not in kinds)]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def total_name(report: Report) -> str:
    """Return the name of the sum."""
    return "instance cost" if report.has_instances_alone else "cost"


def _source(price: Price) -> str:
    return _SOURCES[price.source].format(day=day(price.as_of))
