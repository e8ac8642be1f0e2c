"""The price of an instance at every second, from the best source available.

Nothing falls back silently: every span carries its price's source. The sources are
tried in this order.

* Spot: history → price tag → on-demand catalogue (marked as a guess) → unknown.
* On-demand: what was paid in advance (capacity block, reserved instances, savings plan)
  → negotiated price → catalogue, less a negotiated discount → price tag → unknown.
* A rack's node: its rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

from toolkit.prices.catalogue import Catalogue
from toolkit.prices.contracts import Contracts
from toolkit.prices.model import Price, PriceQuery, PriceSource, PriceSpan
from toolkit.prices.spot import SpotHistory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The catalogue and the spot history of one region, and the contracts of cluster.yaml."""

    region: str
    catalogue: Catalogue
    history: SpotHistory
    contracts: Contracts = field(default_factory=Contracts)
    imported: tuple[Catalogue, ...] = ()
    """Further catalogues, of any region and day."""
    fixed: Mapping[str, tuple[PriceSpan, ...]] = field(default_factory=dict)
    """The prices of single instances and nodes, by id: a commitment's, or a rack's."""

    @classmethod
    def bundled(cls, region: str) -> PriceBook:
        """Return the list prices of the bundled catalogue alone."""
        return cls(region, Catalogue.bundled(), SpotHistory())

    def spans(self, query: PriceQuery, start: int, end: int) -> list[PriceSpan]:
        """Return prices that cover start ≤ t < end, in order.

        There are no gaps and no overlap.
        """
        if start >= end:
            return []
        if query.spot:
            known = self.history.spans(query.instance_type, query.zone, start, end)
        else:
            known = list(_clipped(self.fixed.get(query.instance_id, ()), start, end))
        spans: list[PriceSpan] = []
        position = start
        for span in known:
            if position < span.start:
                spans.extend(self._other_spans(query, position, span.start))
            spans.append(span)
            position = span.end
        if position < end:
            spans.extend(self._other_spans(query, position, end))
        return spans

    def on_demand(self, query: PriceQuery, second: int) -> Price:
        """Return the on-demand price at a second, without commitments."""
        listed = self._listed(query.instance_type, second)
        return (
            self.contracts.negotiated(query.instance_type, self.region, second, listed)
            or listed
            or _tag_price(query)
            or _unknown_price(query)
        )

    def _other_spans(self, query: PriceQuery, start: int, end: int) -> Iterator[PriceSpan]:
        """Yield prices of time without history or commitment."""
        if query.spot:
            yield PriceSpan(start, end, self._spot_without_history(query, start))
            return
        changes = self.contracts.changes(query.instance_type, self.region)
        changes |= {price.as_of for price in self._list_prices(query.instance_type)}
        cuts = sorted(second for second in changes if start < second < end)
        for low, high in pairwise((start, *cuts, end)):
            yield PriceSpan(low, high, self.on_demand(query, low))

    def _list_prices(self, instance_type: str) -> list[Price]:
        """Return the type's prices in all catalogues, by their days."""
        catalogues = (self.catalogue, *self.imported)
        prices = (item.price(instance_type, self.region) for item in catalogues)
        return sorted((price for price in prices if price), key=lambda price: price.as_of)

    def _listed(self, instance_type: str, second: int) -> Price | None:
        """Return the price of that time's newest catalogue, else the oldest's."""
        prices = self._list_prices(instance_type)
        known = [price for price in prices if price.as_of <= second]
        return known[-1] if known else next(iter(prices), None)

    def _spot_without_history(self, query: PriceQuery, second: int) -> Price:
        catalogue_price = self._listed(query.instance_type, second)
        guess = (
            replace(catalogue_price, source=PriceSource.CATALOGUE_FOR_SPOT)
            if catalogue_price
            else None
        )
        return _tag_price(query) or guess or _unknown_price(query)


def _clipped(spans: Iterable[PriceSpan], start: int, end: int) -> Iterator[PriceSpan]:
    for span in spans:
        low, high = max(span.start, start), min(span.end, end)
        if low < high:
            yield PriceSpan(low, high, span.price)


def _tag_price(query: PriceQuery) -> Price | None:
    if query.tag_price is None or query.tag_price <= 0:
        return None
    return Price(query.tag_price, PriceSource.PRICE_TAG, query.launched_at)


def _unknown_price(query: PriceQuery) -> Price:
    return Price(Decimal(0), PriceSource.UNKNOWN, query.launched_at)
