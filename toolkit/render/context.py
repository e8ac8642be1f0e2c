"""Nodes and partitions as slurm.conf has to state them, worked out from cluster.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from toolkit.config.model import ClusterConfig, Pool
    from toolkit.render.prices import Prices

MEMORY_PERCENT: Final = 95
"""Of an instance's nominal memory. Kernel and hypervisor keep the rest, and a node that registers
with less than it was promised to have is drained."""
WEIGHT_STEP: Final = 10
"""Between two price ranks, so that a site can put a pool between two others."""
MILLI: Final = 1000
MIB_PER_GIB: Final = 1024


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One pool. `weight` ranks pools by price: Slurm takes the lowest that fits."""

    pool: str
    nodes: str
    cpus: int
    memory_mib: int
    gpus: int
    gpu: str
    weight: int
    features: tuple[str, ...]
    price: Decimal

    @property
    def gres(self) -> str:
        """`gpu:a10g:1`, `gpu:4` for GPUs of no stated kind, or nothing."""
        if not self.gpus:
            return ""
        return ":".join(part for part in ("gpu", self.gpu, str(self.gpus)) if part)

    @property
    def memory_per_cpu(self) -> int:
        """What a job gets with each CPU unless it asks for another amount."""
        return self.memory_mib // self.cpus

    @property
    def per_gpu(self) -> tuple[int, int] | None:
        """The CPUs and the memory that belong to each GPU; None without one."""
        return (self.cpus // self.gpus, self.memory_mib // self.gpus) if self.gpus else None

    @property
    def billing(self) -> tuple[tuple[str, Decimal], ...]:
        """Milli-dollars an hour for each unit, if that unit alone used up the node.

        With PriorityFlags=MAX_TRES a job is billed for the share of the node that nobody else can
        have because of it, so a whole node costs what its instance costs.
        """
        whole = self.price * MILLI
        rows = [("CPU", whole / self.cpus), ("Mem", whole * MIB_PER_GIB / self.memory_mib)]
        if self.gpus:
            rows.append(("GRES/gpu", whole / self.gpus))
        return tuple(rows)


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """One partition over whole pools. What a job gets unless it asks is by the least of them, for
    more than that some of the nodes could not give. Per GPU is 0 where there is none.
    """

    name: str
    nodes: str
    default: bool
    max_time: str
    suspend_time: int
    memory_per_cpu: int
    cpus_per_gpu: int
    memory_per_gpu: int
    billing: tuple[tuple[str, Decimal], ...]
    priority: int = 1
    grace_seconds: int = 0


@dataclass(frozen=True, slots=True)
class SlurmContext:
    """Everything slurm.conf and the files beside it are made of. `static`: nodes that always have
    a machine, as a hostlist.
    """

    cluster: str
    version: SlurmVersion
    local: bool
    head_hostname: str
    head_address: str
    resume_timeout: int
    suspend_timeout: int
    nodes: tuple[NodeLine, ...]
    partitions: tuple[PartitionLine, ...]
    overrides: tuple[tuple[str, str], ...]
    static: str = ""

    @property
    def gpu_kinds(self) -> tuple[str, ...]:
        """Every kind of GPU in the cluster, sorted."""
        return tuple(sorted({node.gpu for node in self.nodes if node.gpus and node.gpu}))

    @property
    def preempts(self) -> bool:
        """Whether jobs of one partition take nodes from another's."""
        return len({part.priority for part in self.partitions}) > 1

    @property
    def has_gpus(self) -> bool:
        """Whether any node has one."""
        return any(node.gpus for node in self.nodes)


def slurm_context(config: ClusterConfig, prices: Prices) -> SlurmContext:
    """Work out the lines; the order of pools and partitions is cluster.yaml's."""
    nodes = _nodes(config, prices)
    return SlurmContext(
        cluster=config.cluster,
        version=SlurmVersion.parse(config.slurm.version),
        local=config.profile == "local",
        head_hostname=head_hostname(config),
        head_address=str(config.network.head_address),
        resume_timeout=config.slurm.resume_timeout,
        suspend_timeout=config.slurm.suspend_timeout,
        nodes=nodes,
        partitions=_partitions(config, {node.pool: node for node in nodes}),
        overrides=tuple((name, str(value)) for name, value in config.slurm.settings.items()),
        static=",".join(
            config.nodes(name, pool.static) for name, pool in config.pools.items() if pool.static
        ),
    )


def head_hostname(config: ClusterConfig) -> str:
    """The head's own name for itself: slurmctld refuses to start where it differs."""
    return f"{config.cluster}-head"


def first_price(config: ClusterConfig, pool: str, prices: Prices) -> Decimal:
    """What a node of the pool costs an hour when the first offering can be had."""
    first = config.pools[pool].offerings[0]
    capacity = "spot" if first.capacity == "spot" else "on-demand"
    return prices.usd_per_hour(first.type, capacity, config.offering_zones(pool, first)[0])


def _nodes(config: ClusterConfig, prices: Prices) -> tuple[NodeLine, ...]:
    price = {name: first_price(config, name, prices) for name in config.pools}
    # A pool without a known price goes last: it is not to win because nobody knows its price.
    ranks = sorted({value for value in price.values() if value})
    rank = {value: number for number, value in enumerate(ranks, start=1)}
    last = len(ranks) + 1
    return tuple(
        _node(config, name, pool, price[name], WEIGHT_STEP * rank.get(price[name], last))
        for name, pool in config.pools.items()
    )


def _node(config: ClusterConfig, name: str, pool: Pool, price: Decimal, weight: int) -> NodeLine:
    shape = pool.shape
    gpu = shape.gpu if shape.gpus and shape.gpu else ""
    return NodeLine(
        pool=name,
        nodes=config.nodes(name),
        cpus=shape.cpus,
        memory_mib=shape.memory_gib * MIB_PER_GIB * MEMORY_PERCENT // 100,
        gpus=shape.gpus,
        gpu=gpu,
        weight=weight,
        features=tuple(dict.fromkeys(word for word in (name, gpu) if word)),
        price=price,
    )


def _partitions(config: ClusterConfig, nodes: dict[str, NodeLine]) -> tuple[PartitionLine, ...]:
    lines = []
    highest = max(partition.priority for partition in config.partitions.values())
    for name, partition in config.partitions.items():
        members = [nodes[pool] for pool in partition.pools]
        shares = [share for node in members if (share := node.per_gpu)]
        lines.append(
            PartitionLine(
                name=name,
                nodes=",".join(node.nodes for node in members),
                default=partition.default,
                max_time=partition.max_time,
                suspend_time=config.slurm.suspend_time,
                memory_per_cpu=min(node.memory_per_cpu for node in members),
                cpus_per_gpu=min((cpus for cpus, _ in shares), default=0),
                memory_per_gpu=min((memory for _, memory in shares), default=0),
                billing=_dearest(members),
                priority=partition.priority,
                grace_seconds=partition.grace_seconds if partition.priority < highest else 0,
            )
        )
    return tuple(lines)


def _dearest(members: list[NodeLine]) -> tuple[tuple[str, Decimal], ...]:
    """One weight a unit for the whole partition: where pools differ, the dearest of them."""
    weights: dict[str, Decimal] = {}
    for unit, weight in (row for node in members for row in node.billing):
        weights[unit] = max(weight, weights.get(unit, Decimal(0)))
    return tuple((unit, weight) for unit, weight in weights.items() if weight)
