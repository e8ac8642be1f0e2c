"""The table `spans`: the prices of the seconds that instances are billed for.

Most instances are spot, and the history has their prices: SQL prices these. The price book prices
the others, one by one. A market is the spot market of one type in one zone, by its number.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from toolkit.accounting.allocation import billed_spans
from toolkit.accounting.instance_hours import charged_prices
from toolkit.usage.rates import PICO

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from decimal import Decimal

    from toolkit.accounting.allocation import Policy, Window
    from toolkit.accounting.instances import Instance
    from toolkit.prices import PriceBook, PriceSpan, SpotHistory
    from toolkit.usage.database import Database

Market = tuple[str, str]  # instance type and zone

_LARGEST_PRICE = 2**62
_END_OF_TIME = 2**40
_MARKET_PRICES = (
    ("number", "BIGINT"),  # in order of market and second, without gaps
    ("market", "INTEGER"),
    ("second", "BIGINT"),
    ("next_second", "BIGINT"),
    ("pico", "BIGINT"),  # NULL: not known, or no whole number
)
SPANS = {
    "i": "INTEGER",
    "s_start": "BIGINT",
    "s_end": "BIGINT",
    "pico": "BIGINT",
    "known": "BOOLEAN",
    "is_exact": "BOOLEAN",
    "source": "VARCHAR",
}


def markets(instances: Sequence[Instance], history: SpotHistory) -> dict[Market, int]:
    """Return the numbers of the markets that have a history."""
    used = {(item.instance_type, item.zone) for item in instances if item.spot}
    return {key: number for number, key in enumerate(sorted(used & history.changes.keys()))}


def make_market_prices(
    database: Database, history: SpotHistory, numbers: Mapping[Market, int], since: int
) -> None:
    """Make the table `market_prices`, of prices that held after a second."""
    rows: list[Sequence[object]] = []
    for key, number in numbers.items():
        changes = history.changes[key]
        for (second, usd), (next_second, _) in pairwise((*changes, (_END_OF_TIME, None))):
            if next_second > since:
                rows.append((len(rows), number, second, next_second, _pico(usd)))
    database.table("market_prices", _MARKET_PRICES, rows)


def _pico(usd: Decimal | None) -> int | None:
    """Return a price as a whole number, if it is one."""
    if usd is None:
        return None
    pico = usd * PICO
    return int(pico) if pico == int(pico) and pico < _LARGEST_PRICE else None


def book_spans(
    instances: Sequence[Instance],
    without: set[int],
    book: PriceBook,
    window: Window,
    policy: Policy,
) -> Iterator[tuple[object, ...]]:
    """Yield the rows of `spans` of instances that SQL doesn't price.

    `without` are the numbers of the others.
    """
    for number, item in enumerate(instances):
        if number in without:
            continue
        for span in _charged_spans(item, book, window, policy):
            price = span.price
            pico = _pico(price.usd_per_hour)
            yield (
                number, span.start, span.end, 1 if pico is None else pico, price.is_known,
                pico is not None, price.source.value,
            )  # fmt: skip


def _charged_spans(
    instance: Instance, book: PriceBook, window: Window, policy: Policy
) -> Iterator[PriceSpan]:
    if instance.never_ran:
        return
    for span in billed_spans(instance, window.until, policy):
        low, high = max(span.start, window.since), min(span.until, window.until)
        if low < high:
            yield from charged_prices(instance, book, span.start, low, high)
