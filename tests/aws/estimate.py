"""The most that a run costs, from its start to the end of the clean-up. Pure.

Instances are the catalogue's. The others are us-east-1's list prices of 2026-11:
https://aws.amazon.com/fsx/lustre/pricing/ https://aws.amazon.com/vpc/pricing/
https://aws.amazon.com/ebs/pricing/
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from typing import TYPE_CHECKING, Final

from tests.aws.sizes import BUILDER_TYPE, CLEANUP_MINUTES, HEAD_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.aws.sizes import Size
    from toolkit.prices import Catalogue

HOURS_OF_MONTH: Final = Decimal(730)
FSX_GB_MONTH: Final = Decimal("0.145")  # PERSISTENT_2, SSD, 125 MB/s/TiB
FSX_GB: Final = Decimal(1200)
NAT_HOUR: Final = Decimal("0.045")
NAT_GB: Final = Decimal("0.045")
NAT_TRAFFIC: Final = Decimal(20)  # GB: packages of two images
EBS_GB_MONTH: Final = Decimal("0.08")
DISK_GB: Final = Decimal(50)
BUILDERS: Final = 2
HEAD_DISKS: Final = 2
"""The root disk and the data volume."""
CENT: Final = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the cost at the deadline; None: its price is not known."""

    name: str
    usd: Decimal | None

    def __str__(self) -> str:
        amount = "no price known" if self.usd is None else f"{self.usd:>8.2f} USD"
        return f"{amount}  {self.name}"


def estimate(size: Size, region: str, catalogue: Catalogue) -> tuple[Part, ...]:
    """Return the cost of each part at the deadline."""
    hours = Decimal(str(size.minutes + CLEANUP_MINUTES)) / 60

    def instances(name: str, count: int, instance_type: str) -> Part:
        price = catalogue.price(instance_type, region)
        usd = None if price is None else count * price.usd_per_hour * hours
        return Part(f"{name}: {count} x {instance_type}, {hours:.1f} h", usd)

    disks = (HEAD_DISKS + size.nodes + BUILDERS) * DISK_GB
    traffic = NAT_HOUR * hours + NAT_GB * NAT_TRAFFIC
    return (
        instances("head node", 1, HEAD_TYPE),
        instances("nodes, on demand", size.nodes, size.node_type),
        instances("image builders", BUILDERS, BUILDER_TYPE),
        Part("FSx for Lustre, 1200 GB", FSX_GB_MONTH * FSX_GB / HOURS_OF_MONTH * hours),
        Part(f"NAT gateway with {NAT_TRAFFIC} GB", traffic),
        Part(f"disks, {disks} GB", EBS_GB_MONTH * disks / HOURS_OF_MONTH * hours),
    )


def total(parts: Iterable[Part]) -> Decimal:
    """Return the sum, rounded up to a cent."""
    amounts = (part.usd for part in parts if part.usd is not None)
    return sum(amounts, Decimal(0)).quantize(CENT, ROUND_UP)


def refusal(parts: tuple[Part, ...], cap: Decimal | None) -> str:
    """Return why a run may not begin, or "".

    Without a cap, with an unknown price, or with a cap below the estimate none begins.
    """
    unknown = [part.name for part in parts if part.usd is None]
    if unknown:
        return f"no price is known of {'; '.join(unknown)}"
    sentence = f"at its deadline the run costs up to {total(parts)} USD"
    if cap is None:
        return f"{sentence}; set AWS_TEST_CAP_USD to what it may cost"
    if not cap.is_finite() or cap < total(parts):
        return f"{sentence}, and the cap is {cap} USD"
    return ""
