"""The price of an instance at every second, from the best source there is.

Nothing falls back silently: every span carries the source that it was priced from.

* spot: history → what was believed at launch → the on-demand list (tagged as a guess) → unknown
* on-demand: the list → what was believed at launch → unknown
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
    """What has to be known about an instance to price it."""

    instance_type: str
    zone: str
    spot: bool
    believed: Decimal | None
    launched_at: int


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Catalogue and spot history of one region."""

    region: str
    catalogue: Catalogue
    history: SpotHistory

    def spans(self, ask: Ask, start: int, end: int) -> list[PriceSpan]:
        """Prices that cover start ≤ t < end completely, in order, without overlap."""
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
