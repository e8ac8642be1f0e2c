"""Storage and network as resources, from the sizes in cluster.yaml and the lives of instances.

The filesystem, the data volume and the NAT gateway live as long as the cluster. It lives from
the launch of its first head node to the end of its last. A root volume lives as long as its
instance. A GB-month is a GB for the seconds of that month, as EBS bills it. AWS's GB is a GiB.
Objects and NAT traffic are what CloudWatch measured of each day.

A line without a price, or without a known usage, is unknown and says why.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from toolkit.accounting.charges import Component
from toolkit.accounting.days import DAY, by_day, day_of
from toolkit.accounting.instances import Kind
from toolkit.accounting.metrics import NO_METRICS
from toolkit.accounting.resources import Amount, Resource
from toolkit.prices import Price, PriceSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from decimal import Decimal

    from toolkit.accounting.allocation import Window
    from toolkit.accounting.instances import Instance
    from toolkit.accounting.metrics import Metrics

_HOUR = 3600
_MIB, _MIB_PER_GIB = 2**20, 1024
NO_PRICE = "no price in cluster.yaml: its cost is unknown"
NO_SIZE = "CloudWatch's size of a day is not in the records, so the cost of that day is unknown"
OTHER_CLASSES = "some are in other storage classes, for which cluster.yaml has no price"
NO_BYTES = "CloudWatch's bytes of a day are not in the records, so the cost of that day is unknown"
NO_METRIC = "AWS has no metric of it; its bill (CUR) alone knows the cost"
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
    def has_metered(self) -> bool:
        """Return whether a price of what CloudWatch measures is known."""
        return self.s3 is not None or self.nat_gb is not None

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


def gb_months(size: int | Fraction, start: int, end: int) -> Fraction:
    """Return the GB-months of a size, each month by its own length.

    So https://aws.amazon.com/ebs/pricing/ computes it.
    """
    total = Fraction(0)
    while start < end:
        first = datetime.fromtimestamp(start, UTC).replace(day=1, hour=0, minute=0, second=0)
        seconds = monthrange(first.year, first.month)[1] * DAY
        next_month = int(first.timestamp()) + seconds
        total += size * Fraction(min(end, next_month) - start, seconds)
        start = next_month
    return total


def gib(size: int) -> Fraction:
    """Return bytes as GiB, by whole MiB.

    Then the exact amounts of closed days have small denominators, which SQL can add.
    """
    return Fraction(size // _MIB, _MIB_PER_GIB)


def resources(
    infrastructure: Infrastructure,
    instances: Sequence[Instance],
    window: Window,
    metrics: Metrics = NO_METRICS,
) -> list[Resource]:
    """Return the lines of storage and network.

    There are none of a section that cluster.yaml gives no price for: the report then says
    that it leaves them out.
    """
    lines = _Lines(infrastructure.prices, _life(instances), window, metrics)
    rows: list[Resource] = []
    if infrastructure.prices.has_storage:
        rows += lines.storage(infrastructure.sizes, instances)
    if infrastructure.prices.has_network:
        rows += lines.network(infrastructure.sizes)
    return [row for row in rows if row.amounts]


_END_OF_TIME = 2**40


def _life(instances: Iterable[Instance]) -> tuple[int, int] | None:
    """Return the cluster's whole time; None without a head."""
    heads = [item for item in instances if item.is_head]
    if not heads:
        return None
    end = max(_END_OF_TIME if item.ended is None else item.ended for item in heads)
    return min(item.launched for item in heads), end


class _Sums:
    """The known and the unknown part of an amount."""

    def __init__(self) -> None:
        self._parts: dict[bool, tuple[Fraction, int]] = {}
        self.reasons: dict[str, None] = {}

    def add(self, usd: Fraction, seconds: int) -> None:
        """Add a time whose amount is known."""
        self._add(usd, seconds, is_known=True)

    def add_unknown(self, seconds: int, why: str) -> None:
        """Add a time whose amount, or a part of it, is unknown."""
        self._add(Fraction(0), seconds, is_known=False)
        self.reasons[why] = None

    def _add(self, usd: Fraction, seconds: int, *, is_known: bool) -> None:
        known_usd, known_seconds = self._parts.get(is_known, (Fraction(0), 0))
        self._parts[is_known] = known_usd + usd, known_seconds + seconds

    def amounts(self) -> tuple[Amount, ...]:
        """Return the parts in the order of their first seconds."""
        return tuple(
            Amount(usd if is_known else None, seconds)
            for is_known, (usd, seconds) in self._parts.items()
        )


class _Lines:
    """Makes the lines of one report."""

    def __init__(
        self,
        prices: UnitPrices,
        whole_life: tuple[int, int] | None,
        window: Window,
        metrics: Metrics,
    ) -> None:
        self._prices = prices
        self._whole_life = whole_life
        self._window = window
        self._metrics = metrics
        self._life: tuple[int, int] | None = None
        if whole_life is not None:
            start = max(whole_life[0], window.since)
            self._life = start, max(min(whole_life[1], window.until), start)

    def storage(self, sizes: Sizes, instances: Iterable[Instance]) -> Iterator[Resource]:
        """Yield the filesystem, the volumes and the objects."""
        prices = self._prices
        yield self._by_life("shared filesystem", "FSx", sizes.filesystem, prices.fsx)
        yield self._by_life("head's data volume", "EBS", sizes.head_data, prices.ebs)
        for name, of_head in (("head's root volume", True), ("other root volumes", False)):
            own = [item for item in instances if item.is_head is of_head]
            amount = sum((self._root_months(sizes, item) for item in own), Fraction(0))
            yield self._line(Kind.STORAGE, name, "EBS", (amount, prices.ebs))
        yield self._objects(prices.s3)

    def network(self, sizes: Sizes) -> Iterator[Resource]:
        """Yield the NAT gateway, and the traffic."""
        prices = self._prices
        if sizes.has_nat:
            start, end = self._life or (0, 0)
            hours = Fraction(end - start, _HOUR) if self._life else None
            yield self._line(
                Kind.NETWORK, "NAT gateway", "NAT", (hours, prices.nat_hour), hourly=True
            )
            yield self._nat_traffic(prices.nat_gb)
        traffic = (None, prices.cross_zone_gb)
        yield self._line(Kind.NETWORK, "traffic between zones", "EC2", traffic)

    def _objects(self, usd: Decimal | None) -> Resource:
        """Return the objects, by the size of each day."""
        if usd is None or self._life is None:
            return self._line(Kind.STORAGE, "objects", "S3", (None, usd))
        sums, text = _Sums(), "S3"
        for start, end in by_day(*self._life):
            day = start - start % DAY
            stored = self._metrics.stored_on(day)
            text = "S3"
            if stored is None:
                sums.add_unknown(end - start, NO_SIZE)
                continue
            size = gib(stored.standard)
            sums.add(Fraction(usd) * gb_months(size, start, end), end - start)
            text = f"S3: {float(size):,.3f} GiB on {day_of(stored.measured)}"
            if stored.other:
                sums.add_unknown(end - start, OTHER_CLASSES)
        return self._measured(Kind.STORAGE, "objects", (text, usd), sums)

    def _nat_traffic(self, usd: Decimal | None) -> Resource:
        """Return the bytes through the NAT gateway.

        A day's bytes are spread evenly over the cluster's time on it.
        """
        if usd is None or self._life is None or self._whole_life is None:
            return self._line(Kind.NETWORK, "NAT traffic", "NAT", (None, usd))
        born, died = self._whole_life
        sums = _Sums()
        for start, end in by_day(*self._life):
            day = start - start % DAY
            passed = self._metrics.passed.get(day)
            if passed is None:
                sums.add_unknown(end - start, NO_BYTES)
                continue
            share = Fraction(end - start, min(died, day + DAY) - max(born, day))
            sums.add(Fraction(usd) * gib(passed) * share, end - start)
        return self._measured(Kind.NETWORK, "NAT traffic", ("NAT", usd), sums)

    def _measured(
        self, kind: Kind, name: str, text_and_price: tuple[str, Decimal], sums: _Sums
    ) -> Resource:
        """Return a measured line of a known price."""
        text, usd = text_and_price
        line = self._line(kind, name, text, (Fraction(0), usd))
        return replace(line, amounts=sums.amounts(), why_unknown=tuple(sums.reasons))

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
        why = () if usd is not None else (NO_PRICE,)
        if usd is not None and amount is None:
            why = (NO_METRIC if self._life is not None else NO_HEAD,)
        cost = None if usd is None or amount is None else Fraction(usd) * amount
        is_hourly = hourly and usd is not None
        return Resource(
            name,
            kind,
            Component.STORAGE if kind is Kind.STORAGE else Component.NETWORK,
            text,
            start,
            end,
            (Amount(cost, end - start),),
            Price(usd, PriceSource.CONTRACT, self._prices.as_of) if is_hourly and usd else None,
            self._prices.as_of if usd is not None else end,
            why,
        )
