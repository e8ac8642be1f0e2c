"""The prices and the cost policy of cluster.yaml, as accounting works with them."""

from __future__ import annotations

from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING

from toolkit.accounting.cost_policy import KEYS, CostPolicy, Payer
from toolkit.accounting.racks import RackNode
from toolkit.accounting.storage import Infrastructure, Sizes, UnitPrices
from toolkit.config.hardware import IMAGE_GIB
from toolkit.config.rack_names import rack_nodes
from toolkit.prices import Catalogue, Contracts, Price, PriceBook, PriceSource, Shape, SpotHistory
from toolkit.prices.contracts import (
    Match,
    NegotiatedPrice,
    RackRate,
    Reservation,
    SavingsPlan,
    Term,
    block_rate,
)

if TYPE_CHECKING:
    from datetime import datetime

    from toolkit.config import ClusterConfig
    from toolkit.config.prices import (
        CapacityBlock,
        OnDemandPrice,
        Rack,
        ReservedInstances,
        SavingsPlan as SavingsPlanSection,
    )

_MIB_PER_GIB = 1024
NOTHING = Decimal(0)


def cost_policy(config: ClusterConfig) -> CostPolicy:
    """Return who pays for what."""
    section = config.cost_policy
    return CostPolicy(**{key: Payer(getattr(section, key)) for key in KEYS})


def price_book(config: ClusterConfig, imported: tuple[Catalogue, ...]) -> PriceBook:
    """Return the on-demand prices: negotiated, imported and bundled."""
    bundled = Catalogue.bundled()
    return PriceBook(config.aws.region, bundled, SpotHistory(), contracts(config), imported)


def contracts(config: ClusterConfig) -> Contracts:
    """Return all prices of cluster.yaml for instances."""
    prices = config.prices
    return Contracts(
        as_of=as_of(config),
        on_demand=tuple(map(_negotiated, prices.on_demand)),
        reservations=(
            *(_block(config, item) for item in prices.capacity_blocks),
            *map(_reserved, prices.reserved_instances, count(1)),
        ),
        savings_plans=tuple(map(_plan, prices.savings_plans, count(1))),
    )


def racks(config: ClusterConfig) -> dict[str, RackNode]:
    """Return the rate and the shape of each rack's node, by name."""
    return {
        name: RackNode(
            Price(_rack_usd(rack), PriceSource.RACK, as_of(config)),
            Shape(rack.shape.cpus, rack.shape.memory_gib * _MIB_PER_GIB, rack.shape.gpus)
            if rack.shape
            else None,
        )
        for rack in config.prices.racks
        for name in rack_nodes(rack.nodes)
    }


def infrastructure(config: ClusterConfig) -> Infrastructure:
    """Return the storage and the network of the cluster, with their prices."""
    storage, network = config.prices.storage, config.prices.network
    return Infrastructure(
        Sizes(
            filesystem=config.shared.gib,
            head_root=config.head.root_gib,
            head_data=config.head.data_gib,
            login_root=config.login_nodes.root_gib,
            node_root=IMAGE_GIB,
            has_nat=config.network.nat_subnet is not None,
        ),
        UnitPrices(
            as_of=as_of(config),
            fsx=storage.fsx_usd_per_gb_month,
            ebs=storage.ebs_usd_per_gb_month,
            s3=storage.s3_usd_per_gb_month,
            nat_hour=network.nat_usd_per_hour,
            nat_gb=network.nat_usd_per_gb,
            cross_zone_gb=network.cross_zone_usd_per_gb,
        ),
    )


def as_of(config: ClusterConfig) -> int:
    """Return the second on which the prices of cluster.yaml were true."""
    moment = config.prices.as_of
    return 0 if moment is None else int(moment.timestamp())


def _rack_usd(rack: Rack) -> Decimal:
    if rack.usd_per_hour is not None:
        return rack.usd_per_hour
    if rack.capex_usd is None or rack.years is None or rack.target_utilisation is None:
        raise ValueError(f"rack {rack.nodes} has no rate")  # config check refuses it
    return RackRate(
        rack.capex_usd,
        rack.years,
        rack.target_utilisation,
        rack.watts or NOTHING,
        rack.usd_per_kwh or NOTHING,
        rack.staff_usd_per_year or NOTHING,
    ).usd_per_hour


def _negotiated(item: OnDemandPrice) -> NegotiatedPrice:
    return NegotiatedPrice(
        item.usd_per_hour,
        item.discount_percent or NOTHING,
        item.type or "",
        item.region or "",
        _term(item.since, item.until),
    )


def _reserved(item: ReservedInstances, number: int) -> Reservation:
    return Reservation(
        f"reserved: {item.count} x {item.type or item.family} ({number})",
        PriceSource.RESERVED,
        Match(item.type or "", item.family or ""),
        item.count,
        item.usd_per_hour,
        _term(item.since, item.until),
    )


def _plan(item: SavingsPlanSection, number: int) -> SavingsPlan:
    return SavingsPlan(
        f"savings plan for {item.type or item.family or 'all types'} ({number})",
        Match(item.type or "", item.family or ""),
        item.commitment_usd_per_hour,
        _term(item.since, item.until),
        item.discount_percent,
        dict(item.rates),
    )


def _block(config: ClusterConfig, block: CapacityBlock) -> Reservation:
    term = _term(block.since, block.until)
    name = block.reservation or f"pool {block.pool}"
    return Reservation(
        f"capacity block of {name}",
        PriceSource.CAPACITY_BLOCK,
        Match(pools=_block_pools(config, block)),
        block.count,
        block_rate(block.usd_total, block.count, term),
        term,
    )


def _block_pools(config: ClusterConfig, block: CapacityBlock) -> frozenset[tuple[str, str, str]]:
    if block.pool is not None:
        return frozenset({(block.pool, "", "")})
    return frozenset(
        (name, offering.type, offering.zone or "")
        for name, pool in config.pools.items()
        for offering in pool.offerings
        if offering.reservation == block.reservation
    )


def _term(since: datetime | None, until: datetime | None) -> Term:
    return Term(
        0 if since is None else int(since.timestamp()),
        None if until is None else int(until.timestamp()),
    )
