"""The hourly price of an instance at any second, with the source and age of every price.

Belongs here: the on-demand catalogue, the spot history, and the choice among them.
Does not: amounts of money and their division (`toolkit.accounting`).
"""

from __future__ import annotations

from toolkit.prices.book import PriceBook, PriceQuery
from toolkit.prices.catalogue import Catalogue, Shape
from toolkit.prices.model import Price, PriceSource, PriceSpan, parse_usd
from toolkit.prices.spot import SpotHistory, read_history

__all__ = [
    "Catalogue",
    "Price",
    "PriceBook",
    "PriceQuery",
    "PriceSource",
    "PriceSpan",
    "Shape",
    "SpotHistory",
    "parse_usd",
    "read_history",
]
