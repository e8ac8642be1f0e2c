"""The hourly price of an instance at any second, with the source and age of every price.

Belongs here: the on-demand catalogue, the spot history, contracts and commitments, and the
choice among them.
Does not: amounts of money and their division (`toolkit.accounting`).
"""

from __future__ import annotations

from toolkit.prices.book import PriceBook
from toolkit.prices.catalogue import Catalogue, Shape
from toolkit.prices.commitments import Life, UnusedCommitment, cover
from toolkit.prices.contracts import Contracts
from toolkit.prices.model import Price, PriceQuery, PriceSource, PriceSpan, parse_usd
from toolkit.prices.spot import SpotHistory, read_history

__all__ = [
    "Catalogue",
    "Contracts",
    "Life",
    "Price",
    "PriceBook",
    "PriceQuery",
    "PriceSource",
    "PriceSpan",
    "Shape",
    "SpotHistory",
    "UnusedCommitment",
    "cover",
    "parse_usd",
    "read_history",
]
