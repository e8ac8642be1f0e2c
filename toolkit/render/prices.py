"""The prices that the renderer needs: US dollars an hour.

They rank nodes and weigh billing; the bill itself is `toolkit.accounting`'s, priced
second by second. One number for each (type, capacity, zone) is enough; 0 means "not
known".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


UNKNOWN: Final = Decimal(0)


class Prices(Protocol):
    """A source of hourly prices for offerings in zones."""

    def usd_per_hour(self, instance_type: str, capacity: str, zone: str) -> Decimal:
        """Return US dollars an hour; 0 when not known."""
        ...


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices in memory."""

    on_demand: Mapping[str, Decimal]
    """By type."""
    spot: Mapping[tuple[str, str], Decimal] = field(default_factory=dict)
    """Current price by (type, zone)."""

    def usd_per_hour(self, instance_type: str, capacity: str, zone: str) -> Decimal:
        """Return US dollars an hour; unknown spot prices count as on-demand.

        So spot is never cheaper than it may turn out.
        """
        on_demand_price = self.on_demand.get(instance_type, UNKNOWN)
        if capacity == "spot":
            return self.spot.get((instance_type, zone), on_demand_price)
        return on_demand_price
