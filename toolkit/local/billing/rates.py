"""The rates of the local cloud's invoice: its spot price history, and list prices as AWS has them.

List prices are those of us-east-1, in every region.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, Protocol

from toolkit.local.aws.spot_prices import on_demand_price, spot_price
from toolkit.local.billing.usage_log import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.local.billing.usage_log import UsageEvent

VOLUMES: Final[Mapping[str, Decimal]] = {
    # https://aws.amazon.com/ebs/pricing/, a GB-month. IOPS and throughput beyond it are not billed.
    "gp3": Decimal("0.08"),
    "gp2": Decimal("0.10"),
    "io1": Decimal("0.125"),
    "io2": Decimal("0.125"),
    "st1": Decimal("0.045"),
    "sc1": Decimal("0.015"),
    "standard": Decimal("0.05"),
}
FILE_SYSTEMS: Final[Mapping[str, Decimal]] = {
    # https://aws.amazon.com/fsx/lustre/pricing/, a GB-month, by deployment type and throughput.
    "SCRATCH_1": Decimal("0.14"),
    "SCRATCH_2": Decimal("0.14"),
    "PERSISTENT_1.12": Decimal("0.025"),
    "PERSISTENT_1.40": Decimal("0.083"),
    "PERSISTENT_1.50": Decimal("0.14"),
    "PERSISTENT_1.100": Decimal("0.19"),
    "PERSISTENT_1.200": Decimal("0.29"),
    "PERSISTENT_2.125": Decimal("0.145"),
    "PERSISTENT_2.250": Decimal("0.21"),
    "PERSISTENT_2.500": Decimal("0.34"),
    "PERSISTENT_2.1000": Decimal("0.60"),
}
_DEFAULT_FILE_SYSTEM = Decimal("0.145")


class Rates(Protocol):
    """Prices of what is metered, in US dollars an hour or GB-month."""

    def list_price(self, event: UsageEvent) -> Decimal:
        """Return AWS's list price."""

    def price(self, event: UsageEvent, at: int) -> Decimal:
        """Return the price that is charged from that second on."""


class LocalRates:
    """The local cloud's own prices."""

    def list_price(self, event: UsageEvent) -> Decimal:
        """Return AWS's list price, without any discount."""
        if event.kind is Kind.INSTANCE:
            return on_demand_price(event.type)
        if event.kind is Kind.VOLUME:
            return VOLUMES.get(event.type, VOLUMES["gp3"])
        return FILE_SYSTEMS.get(event.type, _DEFAULT_FILE_SYSTEM)

    def price(self, event: UsageEvent, at: int) -> Decimal:
        """Return the price of an hour that begins at that second.

        "You pay the Spot price that's in effect at the beginning of each instance-hour for your
        running instance. If Spot price changes after you launch the instance, the new price is
        charged against the instance usage for the subsequent hour."
        https://aws.amazon.com/ec2/faqs/
        """
        if event.market == "spot":
            return Decimal(spot_price(event.type, event.zone, at))
        return self.list_price(event)
