"""Storage and network as resources, from the sizes in cluster.yaml and the lives of instances.

The filesystem, the data volume and the NAT gateway live as long as the cluster. It lives from
the launch of its first head node to the end of its last. A root volume lives as long as its
instance. A GB-month is a GB for the seconds of that month, as EBS bills it. AWS's GB of a
volume is a GiB.

A line without a price, or without a known usage, is unknown and says why.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Component
from toolkit.accounting.days import DAY
from toolkit.accounting.instances import Kind
from toolkit.accounting.resources import Resource
from toolkit.prices import Price, PriceSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from decimal import Decimal

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.instances import Instance

_HOUR = 3600
NO_PRICE = "no price in cluster.yaml: its cost is unknown"
NO_USAGE = "its size or traffic is not known, and so its cost"
NO_HEAD = "no head node is known, so neither is its time nor its cost"


@dataclass(frozen=True, slots=True)
class UnitPrices:
    """Prices of a GB-month, a GB or an hour; None: not known."""

    as_of: int = 0
    fsx: Decimal | None = None
    ebs: Decimal | None = None
    s3: Decimal | None = None
    nat_hour: Decimal | None = None
    nat_gb: Decimal | None = None
    cross_zone_gb: Decimal | None = None

    @property
    def has_storage(self) -> bool:
        """Return whether a price of storage is known."""
        return any(usd is not None for usd in (self.fsx, self.ebs, self.s3))

    @property
    def has_network(self) -> bool:
        """Return whether a price of the network is known."""
        prices = (self.nat_hour, self.nat_gb, self.cross_zone_gb)
        return any(usd is not None for usd in prices)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes by cluster.yaml, in GiB."""

    filesystem: int
    head_root: int
    head_data: int
    login_root: int
    node_root: int
    has_nat: bool
    login_pool: str = "login"

    def root(self, instance: Instance) -> int:
        """Return the size of an instance's root volume."""
        if instance.is_head:
            return self.head_root
        return self.login_root if instance.pool == self.login_pool else self.node_root


@dataclass(frozen=True, slots=True)
class Infrastructure:
    """The storage and the network of a cluster, with their prices."""

    sizes: Sizes
    prices: UnitPrices


def gb_months(size: int, start: int, end: int) -> Fraction:
    """Return the GB-months of a size, each month by its own length.

    So https://aws.amazon.com/ebs/pricing/ computes it.
    """
    total = Fraction(0)
    while start < end:
        first = datetime.fromtimestamp(start, UTC).replace(day=1, hour=0, minute=0, second=0)
        seconds = monthrange(first.year, first.month)[1] * DAY
        next_month = int(first.timestamp()) + seconds
        total += Fraction(size * (min(end, next_month) - start), seconds)
        start = next_month
    return total


def resources(
    infrastructure: Infrastructure, instances: Sequence[Instance], window: Window
) -> list[Resource]:
    """Return the lines of storage and network.

    There are none of a section that cluster.yaml gives no price for: the report then says
    that it leaves them out.
    """
    lines = _Lines(infrastructure.prices, _life(instances, window), window)
    rows: list[Resource] = []
    if infrastructure.prices.has_storage:
        rows += lines.storage(infrastructure.sizes, instances)
    if infrastructure.prices.has_network:
        rows += lines.network(infrastructure.sizes)
    return rows


def _life(instances: Iterable[Instance], window: Window) -> tuple[int, int] | None:
    """Return the cluster's time in the window; None without a head."""
    heads = [item for item in instances if item.is_head]
    if not heads:
        return None
    start = max(min(item.launched for item in heads), window.since)
    end = max(window.until if item.ended is None else item.ended for item in heads)
    return start, max(min(end, window.until), start)


class _Lines:
    """Makes the lines of one report."""

    def __init__(self, prices: UnitPrices, life: tuple[int, int] | None, window: Window) -> None:
        self._prices = prices
        self._life = life
        self._window = window

    def storage(self, sizes: Sizes, instances: Iterable[Instance]) -> Iterator[Resource]:
        """Yield the filesystem, the volumes and the objects."""
        prices = self._prices
        yield self._by_life("shared filesystem", "FSx", sizes.filesystem, prices.fsx)
        yield self._by_life("head's data volume", "EBS", sizes.head_data, prices.ebs)
        for name, of_head in (("head's root volume", True), ("other root volumes", False)):
            own = [item for item in instances if item.is_head is of_head]
            amount = sum((self._root_months(sizes, item) for item in own), Fraction(0))
            yield self._line(Kind.STORAGE, name, "EBS", (amount, prices.ebs))
        yield self._line(Kind.STORAGE, "objects", "S3", (None, prices.s3))

    def network(self, sizes: Sizes) -> Iterator[Resource]:
        """Yield the NAT gateway, and traffic of an unknown amount."""
        prices = self._prices
        if sizes.has_nat:
            start, end = self._life or (0, 0)
            hours = Fraction(end - start, _HOUR) if self._life else None
            yield self._line(
                Kind.NETWORK, "NAT gateway", "NAT", (hours, prices.nat_hour), hourly=True
            )
            yield self._line(Kind.NETWORK, "NAT traffic", "NAT", (None, prices.nat_gb))
        traffic = (None, prices.cross_zone_gb)
        yield self._line(Kind.NETWORK, "traffic between zones", "EC2", traffic)

    def _by_life(self, name: str, service: str, size: int, usd: Decimal | None) -> Resource:
        amount = None if self._life is None else gb_months(size, *self._life)
        text = f"{service} {size} GiB"
        return self._line(Kind.STORAGE, name, text, (amount, usd))

    def _root_months(self, sizes: Sizes, instance: Instance) -> Fraction:
        end = self._window.until if instance.ended is None else instance.ended
        start = max(instance.launched, self._window.since)
        return gb_months(sizes.root(instance), start, min(end, self._window.until))

    def _line(
        self,
        kind: Kind,
        name: str,
        text: str,
        amount_and_price: tuple[Fraction | None, Decimal | None],
        *,
        hourly: bool = False,
    ) -> Resource:
        amount, usd = amount_and_price
        start, end = self._life or (self._window.since, self._window.until)
        why = "" if usd is not None else NO_PRICE
        if usd is not None and amount is None:
            why = NO_USAGE if self._life is not None else NO_HEAD
        cost = None if usd is None or amount is None else Fraction(usd) * amount
        is_hourly = hourly and usd is not None
        return Resource(
            name,
            kind,
            Component.STORAGE if kind is Kind.STORAGE else Component.NETWORK,
            text,
            start,
            end,
            cost,
            Price(usd, PriceSource.CONTRACT, self._prices.as_of) if is_hourly and usd else None,
            self._prices.as_of if usd is not None else end,
            why,
        )
