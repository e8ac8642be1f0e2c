"""The price of an instance at every second, from the best source available.

Nothing falls back silently: every span carries its price's source. The sources are
tried in this order.

* Spot: history → price tag → on-demand catalogue (marked as a guess) → unknown.
* On-demand: catalogue → price tag → unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from toolkit.prices.model import Price, PriceSource, PriceSpan

if TYPE_CHECKING:
    from toolkit.prices.catalogue import Catalogue
    from toolkit.prices.spot import SpotHistory


@dataclass(frozen=True, slots=True)
class PriceQuery:
    """The facts of an instance that its price depends on."""

    instance_type: str
    zone: str
    spot: bool
    tag_price: Decimal | None  # US dollars an hour, from the price tag at launch
    launched_at: int


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The catalogue and the spot history of one region."""

    region: str
    catalogue: Catalogue
    history: SpotHistory

    def spans(self, query: PriceQuery, start: int, end: int) -> list[PriceSpan]:
        """Return prices that cover start ≤ t < end, in order.

        There are no gaps and no overlap.
        """
        if start >= end:
            return []
        if not query.spot:
            return [PriceSpan(start, end, self._on_demand(query))]
        spans: list[PriceSpan] = []
        position = start
        for span in self.history.spans(query.instance_type, query.zone, start, end):
            if position < span.start:
                spans.append(PriceSpan(position, span.start, self._spot_without_history(query)))
            spans.append(span)
            position = span.end
        if position < end:
            spans.append(PriceSpan(position, end, self._spot_without_history(query)))
        return spans

    def _on_demand(self, query: PriceQuery) -> Price:
        return (
            self.catalogue.price(query.instance_type, self.region)
            or _tag_price(query)
            or _unknown_price(query)
        )

    def _spot_without_history(self, query: PriceQuery) -> Price:
        catalogue_price = self.catalogue.price(query.instance_type, self.region)
        guess = (
            replace(catalogue_price, source=PriceSource.CATALOGUE_FOR_SPOT)
            if catalogue_price
            else None
        )
        return _tag_price(query) or guess or _unknown_price(query)


def _tag_price(query: PriceQuery) -> Price | None:
    if query.tag_price is None or query.tag_price <= 0:
        return None
    return Price(query.tag_price, PriceSource.PRICE_TAG, query.launched_at)


def _unknown_price(query: PriceQuery) -> Price:
    return Price(Decimal(0), PriceSource.UNKNOWN, query.launched_at)
