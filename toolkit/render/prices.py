"""What the renderer must know about prices: who asks for one gets US dollars an hour.

They rank nodes and weigh billing; the bill itself is `toolkit.accounting`'s, priced second by
second. So one number a (type, capacity, zone) is enough, and a missing one is 0, "not known".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.prices.catalogue import Catalogue

UNKNOWN: Final = Decimal(0)


class Prices(Protocol):
    """Anything that can put a price on an offering in a zone."""

    def usd_per_hour(self, instance_type: str, capacity: str, zone: str) -> Decimal:
        """US dollars an hour; 0 when not known."""
        ...


@dataclass(frozen=True, slots=True)
class PriceTable:
    """On-demand prices by type, and what spot costs now by (type, zone)."""

    on_demand: Mapping[str, Decimal]
    spot: Mapping[tuple[str, str], Decimal] = field(default_factory=dict)

    @classmethod
    def of_catalogue(
        cls, catalogue: Catalogue, region: str, spot: Mapping[tuple[str, str], Decimal]
    ) -> PriceTable:
        """The catalogue's prices where it is about this region, and the given spot prices."""
        same = region == catalogue.region
        return cls(dict(catalogue.prices) if same else {}, dict(spot))

    def usd_per_hour(self, instance_type: str, capacity: str, zone: str) -> Decimal:
        """Spot without a known price counts as on-demand: never cheaper than it may turn out."""
        listed = self.on_demand.get(instance_type, UNKNOWN)
        if capacity == "spot":
            return self.spot.get((instance_type, zone), listed)
        return listed
