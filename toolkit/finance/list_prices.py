"""The on-demand price of an hour: as listed, and as negotiated.

Spot saves against these. They come from catalogues and cluster.yaml alone, so nobody is
asked. A price tag is none: of a spot instance it is a spot price.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.instances import Kind
from toolkit.prices import Contracts, PriceQuery

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from toolkit.accounting.instances import Instance
    from toolkit.prices import PriceBook, Shape


class ListPrices:
    """On-demand prices of one region."""

    def __init__(self, book: PriceBook) -> None:
        """Take the book with the contracts of cluster.yaml."""
        self.book = book
        self.region = book.region
        self.shapes: Mapping[str, Shape] = book.catalogue.shapes
        self._listed = replace(book, contracts=Contracts())
        self._known: dict[tuple[bool, str, int], Decimal | None] = {}

    def listed(self, instance: Instance, second: int) -> Decimal | None:
        """Return the price of AWS's list; None if it is not known."""
        return self._price(instance, second, is_listed=True)

    def contracted(self, instance: Instance, second: int) -> Decimal | None:
        """Return the negotiated price, else that of the list."""
        return self._price(instance, second, is_listed=False)

    def of_gpus(self, instance_type: str, gpus: int, second: int) -> Fraction | None:
        """Return the negotiated dollars of some GPUs' hour; None if not known."""
        shape = self.shapes.get(instance_type)
        query = PriceQuery(instance_type, "", spot=False, tag_price=None, launched_at=second)
        usd = self.book.on_demand(query, second).usd_per_hour
        if shape is None or not shape.gpus or not usd:
            return None
        return Fraction(usd) * gpus / shape.gpus

    def _price(self, instance: Instance, second: int, *, is_listed: bool) -> Decimal | None:
        if instance.kind is not Kind.INSTANCE:
            return None
        key = is_listed, instance.instance_type, second
        if key not in self._known:
            book = self._listed if is_listed else self.book
            query = replace(instance.price_query(), tag_price=None, spot=False)
            price = book.on_demand(query, second)
            self._known[key] = price.usd_per_hour if price.is_known else None
        return self._known[key]
