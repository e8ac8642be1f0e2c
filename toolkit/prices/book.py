"""The price of an instance at every second, from the best source available.

Nothing falls back silently: every span carries its price's source. The sources are
tried in this order.

* Spot: history → price tag at launch → on-demand list (tagged as a guess) → unknown. *
On-demand: the list → price tag at launch → unknown.
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
class Ask:
    """The facts of an instance that its price depends on."""

    instance_type: str
    zone: str
    spot: bool
    believed: Decimal | None  # US dollars an hour, from the price tag at launch
    launched_at: int


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The catalogue and the spot history of one region."""

    region: str
    catalogue: Catalogue
    history: SpotHistory

    def spans(self, ask: Ask, start: int, end: int) -> list[PriceSpan]:
        """Return prices that cover start ≤ t < end, in order.

        There are no gaps and no overlap.
        """
        if start >= end:
            return []
        if not ask.spot:
            return [PriceSpan(start, end, self._on_demand(ask))]
        known = self.history.spans(ask.instance_type, ask.zone, start, end)
        covered_from = known[0].start if known else end
        if covered_from > start:
            known.insert(0, PriceSpan(start, covered_from, self._spot_without_history(ask)))
        return known

    def _on_demand(self, ask: Ask) -> Price:
        return (
            self.catalogue.price(ask.instance_type, self.region) or _believed(ask) or _unknown(ask)
        )

    def _spot_without_history(self, ask: Ask) -> Price:
        listed = self.catalogue.price(ask.instance_type, self.region)
        guess = replace(listed, source=PriceSource.LIST_FOR_SPOT) if listed else None
        return _believed(ask) or guess or _unknown(ask)


def _believed(ask: Ask) -> Price | None:
    if ask.believed is None or ask.believed <= 0:
        return None
    return Price(ask.believed, PriceSource.BELIEVED, ask.launched_at)


def _unknown(ask: Ask) -> Price:
    return Price(Decimal(0), PriceSource.UNKNOWN, ask.launched_at)
