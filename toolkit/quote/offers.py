"""The price of a job on each offering that its partition may use. Pure.

The order is that of the launch itself (`slurmplugins.launch.fallback`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from slurmplugins.launch.fallback import fallback_order
from slurmplugins.model.instance import Lifecycle, Offering, Policy, PolicyName, Pool
from toolkit.config.types import seconds
from toolkit.prices import Price, PriceQuery, PriceSource
from toolkit.quote.errors import BadRequest, NothingFits, NoTimeLimit, UnknownPartition
from toolkit.quote.fit import fit
from toolkit.quote.request import parse_time
from toolkit.render import PriceTable
from toolkit.render.context import slurm_context

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from toolkit.config import ClusterConfig
    from toolkit.prices import PriceBook
    from toolkit.quote.request import JobRequest
    from toolkit.render.context import NodeLine, PartitionLine

HOUR: Final = 3600
_CENT: Final = Decimal("0.0001")


@dataclass(frozen=True, slots=True)
class Offer:
    """A job's price on one offering."""

    partition: str
    pool: str
    type: str
    zone: str
    lifecycle: str
    reservation: str
    nodes: int
    share: float  # of each node
    gpus: int
    gpu: str
    usd_per_instance_hour: Decimal
    usd_per_hour: Decimal  # of one task of the job
    source: str  # of the price
    known: bool
    after_seconds: int  # that the job must wait before it may be bought

    @property
    def is_spot(self) -> bool:
        return self.lifecycle == Lifecycle.SPOT

    def usd(self, run_seconds: float) -> Decimal:
        """Return the cost of one task that runs so long."""
        return (self.usd_per_hour * Decimal(run_seconds) / HOUR).quantize(_CENT)

    def usd_of_instances(self, held_seconds: float) -> Decimal:
        """Return the cost of its instances as a whole."""
        hours = Decimal(held_seconds) / HOUR
        return (self.usd_per_instance_hour * self.nodes * hours).quantize(_CENT)


def resolved(request: JobRequest, config: ClusterConfig) -> JobRequest:
    """Return the request with its final partitions and time limit.

    Raises UnknownPartition, NoTimeLimit or BadRequest, in Slurm's words.
    """
    names = request.partitions or _partitions_of_class(request.qos, config)
    names = names or tuple(
        name for name, partition in config.partitions.items() if partition.default
    )
    if not names:
        raise UnknownPartition(
            "no partition specified, and the cluster has no default partition",
            next_step=f"give --partition: {', '.join(config.partitions)}",
        )
    for name in names:
        if name not in config.partitions:
            close = get_close_matches(name, config.partitions, n=1)
            fix = f"did you mean {close[0]}?" if close else f"use {', '.join(config.partitions)}"
            raise UnknownPartition(f"invalid partition specified: {name}", next_step=fix)
    return replace(request, partitions=names, time_limit=_limit(request, config, names))


def _partitions_of_class(qos: str, config: ClusterConfig) -> tuple[str, ...]:
    """Return the partition that cli_filter.lua gives to the class."""
    workload = config.classes.get(qos.lower())
    return workload.partitions[:1] if workload and config.slurm.submit_line else ()


def _limit(request: JobRequest, config: ClusterConfig, names: Sequence[str]) -> int:
    longest = [parse_time(config.partitions[name].max_time) for name in names]
    bounds = [limit for limit in longest if limit is not None]
    if request.time_limit is None:
        if len(bounds) < len(names) or (request.unlimited and bounds):
            raise NoTimeLimit(
                "no time limit: neither --time nor the partition's max_time bounds the job:"
                f" {', '.join(names)}",
                next_step="give --time, so that its cost has a bound",
            )
        return max(bounds)
    if len(bounds) == len(names) and request.time_limit > max(bounds):
        raise BadRequest(
            f"requested time limit is invalid: {request.time_limit // 60} minutes, and partition"
            f" {names[0]} allows {max(bounds) // 60}",
            next_step="lower --time",
        )
    return request.time_limit


@dataclass(frozen=True, slots=True)
class Market:
    """The offerings of cluster.yaml at the prices of one second."""

    config: ClusterConfig
    book: PriceBook
    now: int

    def prices(self, pool: str) -> Iterator[tuple[Offering, Price]]:
        """Yield the pool's offerings in cluster.yaml's order, with their prices."""
        return _prices(self.config, pool, self.book, self.now)


def offers(request: JobRequest, market: Market) -> tuple[Offer, ...]:
    """Return the job's offerings, in the order of the launch.

    Slurm fills the pool of the lowest weight first. Raises NothingFits.
    """
    context = slurm_context(market.config, _table(market))
    nodes = {line.pool: line for line in context.nodes}
    lines = {line.name: line for line in context.partitions}
    offered = [
        offer
        for name in request.partitions
        for node in _by_weight(market.config, name, nodes)
        for offer in _of_pool(request, market, node, lines[name])
    ]
    if not offered:
        raise NothingFits(
            "requested node configuration is not available: no pool of partition"
            f" {', '.join(request.partitions)} has what the job requests",
            next_step="request less of a node, or more nodes; `toolkit nodes` lists them",
        )
    return tuple(offered)


def _by_weight(config: ClusterConfig, partition: str, nodes: dict[str, NodeLine]) -> list[NodeLine]:
    pools = config.partitions[partition].pools
    return sorted((nodes[pool] for pool in pools), key=lambda line: line.weight)


def _of_pool(
    request: JobRequest, market: Market, node: NodeLine, partition: PartitionLine
) -> Iterator[Offer]:
    job_fit = fit(request, node, market.config.pools[node.pool].count, partition)
    if job_fit is None:
        return
    policy = _policy(market.config.partitions[partition.name].policy)
    prices = dict(market.prices(node.pool))
    pool = Pool(node.pool, (), partition.name, "", {}, tuple(prices))
    for offering in (item for group in fallback_order(pool, policy, math.inf) for item in group):
        waits = 0.0 if offering.lifecycle is Lifecycle.SPOT else policy.on_demand_after
        price = prices[offering]
        per_hour = (
            price.usd_per_hour * job_fit.whole_nodes.numerator / job_fit.whole_nodes.denominator
        )
        yield Offer(
            partition=partition.name,
            pool=node.pool,
            type=offering.type,
            zone=offering.zone,
            lifecycle=offering.lifecycle.value,
            reservation=offering.reservation,
            nodes=job_fit.nodes,
            share=float(job_fit.share),
            gpus=job_fit.gpus,
            gpu=node.gpu,
            usd_per_instance_hour=price.usd_per_hour,
            usd_per_hour=per_hour.quantize(Decimal("0.000001")),
            source=price.source.value,
            known=price.is_known,
            after_seconds=int(waits),
        )


def _prices(
    config: ClusterConfig, pool: str, book: PriceBook, now: int
) -> Iterator[tuple[Offering, Price]]:
    for section in config.pools[pool].offerings:
        is_spot = section.capacity == "spot"
        for zone in config.offering_zones(pool, section):
            query = PriceQuery(section.type, zone, is_spot, None, now, pool=pool)
            price = _price(book, query, now)
            lifecycle = Lifecycle.SPOT if is_spot else Lifecycle.ON_DEMAND
            yield (
                Offering(
                    section.type,
                    lifecycle,
                    zone,
                    f"{price.usd_per_hour:f}",
                    section.reservation or "",
                    section.capacity == "capacity-block",
                ),
                price,
            )


def _price(book: PriceBook, query: PriceQuery, now: int) -> Price:
    """Return the price of a second; a capacity block's is its own."""
    for item in book.contracts.reservations:
        is_block = item.source is PriceSource.CAPACITY_BLOCK
        if is_block and item.term.holds(now) and item.match.includes(query):
            return Price(item.usd_per_hour, item.source, book.contracts.as_of)
    return book.spans(query, now, now + 1)[0].price


def _policy(text: str) -> Policy:
    name, _, after = text.partition(" ")
    return Policy(PolicyName(name), float(seconds(after)) if after else 0.0)


def _table(market: Market) -> PriceTable:
    """Return the prices that rank the pools, as slurm.conf has them."""
    on_demand: dict[str, Decimal] = {}
    spot: dict[tuple[str, str], Decimal] = {}
    for pool in market.config.pools:
        for offering, price in market.prices(pool):
            if offering.lifecycle is Lifecycle.SPOT:
                spot[offering.type, offering.zone] = price.usd_per_hour
            else:
                on_demand[offering.type] = price.usd_per_hour
    return PriceTable(on_demand, spot)


def cheapest(items: Iterable[Offer], *, spot: bool) -> Offer | None:
    """Return the cheapest known offer of one lifecycle."""
    priced = [item for item in items if item.known and item.is_spot is spot]
    return min(priced, key=lambda item: item.usd_per_hour, default=None)
