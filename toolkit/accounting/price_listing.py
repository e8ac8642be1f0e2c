"""The prices that a report of a cluster takes, each with its source and age."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.accounting.days import DAY
from toolkit.accounting.settings import as_of, contracts, price_book, racks
from toolkit.config.rack_names import rack_nodes
from toolkit.prices import PriceQuery, PriceSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from decimal import Decimal

    from toolkit.config import ClusterConfig
    from toolkit.prices import Catalogue, PriceBook
    from toolkit.prices.contracts import Reservation, SavingsPlan


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """A price of an instance type, a rack, a commitment or a resource."""

    what: str
    usd: Decimal | None  # None: not known
    unit: str
    source: str
    as_of: int | None

    def age_days(self, now: int) -> int | None:
        """Return its whole days of age."""
        return None if self.as_of is None else max(now - self.as_of, 0) // DAY


def listing(config: ClusterConfig, imported: tuple[Catalogue, ...], now: int) -> list[ListedPrice]:
    """Return prices on demand, of commitments, racks, storage and network."""
    agreed = contracts(config)
    book = price_book(config, imported)
    rows = [_on_demand(book, name, now) for name in _types(config)]
    rows += [_committed(item, "instance-hour", agreed.as_of) for item in agreed.reservations]
    rows += [_committed(item, "commitment-hour", agreed.as_of) for item in agreed.savings_plans]
    rates = racks(config)
    for rack in config.prices.racks:
        price = rates[rack_nodes(rack.nodes)[0]].price
        usd, source = price.usd_per_hour, price.source.value
        rows.append(ListedPrice(rack.nodes, usd, "node-hour", source, price.as_of))
    return [*rows, *_units(config)]


def _types(config: ClusterConfig) -> list[str]:
    names = {offering.type for pool in config.pools.values() for offering in pool.offerings}
    names |= {config.head.instance_type} if config.site is None else set()
    names |= {config.login_nodes.instance_type} if config.login_nodes.count else set()
    return sorted(names)


def _on_demand(book: PriceBook, name: str, now: int) -> ListedPrice:
    price = book.on_demand(PriceQuery(name, "", False, None, now), now)
    usd = price.usd_per_hour if price.is_known else None
    seen = price.as_of if price.is_known else None
    return ListedPrice(f"{name} on demand", usd, "hour", price.source.value, seen)


def _committed(item: Reservation | SavingsPlan, unit: str, seen: int) -> ListedPrice:
    return ListedPrice(item.name, item.usd_per_hour, unit, item.source.value, seen)


def _units(config: ClusterConfig) -> Iterator[ListedPrice]:
    storage, network = config.prices.storage, config.prices.network
    for what, usd, unit in (
        ("shared filesystem (FSx)", storage.fsx_usd_per_gb_month, "GB-month"),
        ("volumes (EBS)", storage.ebs_usd_per_gb_month, "GB-month"),
        ("objects (S3)", storage.s3_usd_per_gb_month, "GB-month"),
        ("NAT gateway", network.nat_usd_per_hour, "hour"),
        ("NAT gateway traffic", network.nat_usd_per_gb, "GB"),
        ("traffic between zones", network.cross_zone_usd_per_gb, "GB"),
    ):
        source = PriceSource.UNKNOWN if usd is None else PriceSource.CONTRACT
        seen = None if usd is None else as_of(config)
        yield ListedPrice(what, usd, unit, source.value, seen)
