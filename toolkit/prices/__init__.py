"""What an instance costs an hour, at any second, with the source and the age of every price."""

from __future__ import annotations

from toolkit.prices.book import Ask, PriceBook
from toolkit.prices.catalogue import Catalogue, Shape
from toolkit.prices.model import Price, PriceSource, PriceSpan
from toolkit.prices.spot import SpotHistory, read_history

__all__ = [
    "Ask",
    "Catalogue",
    "Price",
    "PriceBook",
    "PriceSource",
    "PriceSpan",
    "Shape",
    "SpotHistory",
    "read_history",
]
