"""Computes the nodes and partitions of slurm.conf from cluster.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from slurmplugins.model.hostlist import split_parts
from toolkit.render.topology import topology_of
from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from toolkit.config.model import ClusterConfig, PoolSection
    from toolkit.render.prices import Prices

MEMORY_PERCENT: Final = 95
"""Of an instance's nominal memory. Kernel and hypervisor keep the rest, and Slurm drains a node
that registers with less than slurm.conf promises."""
WEIGHT_STEP: Final = 10
"""Between two price ranks, so that a site can put a pool between two others."""
MILLI: Final = 1000
MIB_PER_GIB: Final = 1024


@dataclass(frozen=True, slots=True)
class NodeLine:
    """The nodes of one pool, one line of slurm.conf."""

    pool: str
    nodes: str  # hostlist
    cpus: int
    memory_mib: int
    gpus: int
    gpu: str  # kind of GPU, e.g. a10g
    weight: int  # ranks pools by price: Slurm takes the lowest that fits
    features: tuple[str, ...]
    price: Decimal  # US dollars an hour; 0: not known
    sockets: int = 0  # 0: Slurm knows no cores, and each CPU counts as one
    threads_per_core: int = 1

    @property
    def gres(self) -> str:
        """Return `gpu:a10g:1`, or `gpu:4` without a kind, or ""."""
        if not self.gpus:
            return ""
        return ":".join(part for part in ("gpu", self.gpu, str(self.gpus)) if part)

    @property
    def cores_per_socket(self) -> int:
        """Return the cores of a processor; 0 where they are not known."""
        return self.cpus // (self.sockets * self.threads_per_core) if self.sockets else 0

    @property
    def memory_per_cpu(self) -> int:
        """Return a job's memory in MiB for each CPU, by default."""
        return self.memory_mib // self.cpus

    @property
    def per_gpu(self) -> tuple[int, int] | None:
        """Return the CPUs and the MiB for each GPU; None without GPUs."""
        return (self.cpus // self.gpus, self.memory_mib // self.gpus) if self.gpus else None

    @property
    def billing(self) -> tuple[tuple[str, Decimal], ...]:
        """Return each unit's milli-dollars an hour, as if it used the node.

        With PriorityFlags=MAX_TRES a job is billed for the share of the node that no
        other job can have because of it. Therefore a whole node costs what its instance
        costs.
        """
        node_price = self.price * MILLI
        rows = [
            ("CPU", node_price / self.cpus),
            ("Mem", node_price * MIB_PER_GIB / self.memory_mib),
        ]
        if self.gpus:
            rows.append(("GRES/gpu", node_price / self.gpus))
        return tuple(rows)


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A partition over whole pools.

    The defaults per CPU and per GPU are the smallest of its pools': some nodes could
    not give more.
    """

    name: str
    nodes: str  # Hostlist
    default: bool
    max_time: str
    suspend_time: int  # Seconds
    memory_per_cpu: int  # MiB
    cpus_per_gpu: int  # 0 without GPUs
    memory_per_gpu: int  # MiB; 0 without GPUs
    billing: tuple[tuple[str, Decimal], ...]
    priority: int = 1
    grace_seconds: int = 0
    denied_qos: tuple[str, ...] = ()  # Workload classes whose jobs may not run here
    topology: str = ""  # Of topology.yaml; "" for the default, where all nodes are equally close


@dataclass(frozen=True, slots=True)
class SlurmContext:
    """The values that slurm.conf and the files beside it are rendered from."""

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
    static: str = ""  # Nodes that always have an instance, as a hostlist
    private_data: tuple[str, ...] = ()  # What users see of their own alone
    submit_line: bool = True  # Whether sbatch prints what a job would cost
    class_partitions: tuple[
        tuple[str, str], ...
    ] = ()  # Of jobs that name a class, and no partition

    @property
    def gpu_kinds(self) -> tuple[str, ...]:
        """Return every kind of GPU in the cluster, sorted."""
        return tuple(sorted({node.gpu for node in self.nodes if node.gpus and node.gpu}))

    @property
    def has_preemption(self) -> bool:
        """Return whether jobs of one partition preempt jobs of another."""
        return len({part.priority for part in self.partitions}) > 1

    @property
    def placed_nodes(self) -> str:
        """Return the nodes of all partitions with a topology, as a hostlist.

        They are all nodes of their partitions: topology/tree gives a job no node without a switch.
        """
        lines = [part.nodes for part in self.partitions if part.topology]
        return ",".join(dict.fromkeys(nodes for line in lines for nodes in split_parts(line)))

    @property
    def has_gpus(self) -> bool:
        """Return whether any node has a GPU."""
        return any(node.gpus for node in self.nodes)


def slurm_context(config: ClusterConfig, prices: Prices) -> SlurmContext:
    """Compute the lines, in cluster.yaml's order of pools and partitions."""
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
        private_data=config.slurm.private_data,
        submit_line=config.slurm.submit_line,
        class_partitions=tuple(
            (name, item.partitions[0]) for name, item in config.classes.items() if item.partitions
        ),
    )


def head_hostname(config: ClusterConfig) -> str:
    """Return the head's own hostname.

    slurmctld refuses to start on a host of another name.
    """
    return f"{config.cluster}-head"


def first_price(config: ClusterConfig, pool: str, prices: Prices) -> Decimal:
    """Return the hourly price of the pool's first offering."""
    offering = config.pools[pool].offerings[0]
    capacity = "spot" if offering.capacity == "spot" else "on-demand"
    return prices.usd_per_hour(offering.type, capacity, config.offering_zones(pool, offering)[0])


def _nodes(config: ClusterConfig, prices: Prices) -> tuple[NodeLine, ...]:
    price_by_pool = {name: first_price(config, name, prices) for name in config.pools}
    # A pool without a known price goes last: an unknown price must not win.
    ranks = sorted({value for value in price_by_pool.values() if value})
    rank_by_price = {value: number for number, value in enumerate(ranks, start=1)}
    last_rank = len(ranks) + 1
    return tuple(
        _node(
            config,
            name,
            pool,
            price_by_pool[name],
            WEIGHT_STEP * rank_by_price.get(price_by_pool[name], last_rank),
        )
        for name, pool in config.pools.items()
    )


def _node(
    config: ClusterConfig, name: str, pool: PoolSection, price: Decimal, weight: int
) -> NodeLine:
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
        sockets=shape.sockets or 0,
        threads_per_core=shape.threads_per_core,
    )


def _partitions(config: ClusterConfig, nodes: dict[str, NodeLine]) -> tuple[PartitionLine, ...]:
    lines = []
    highest = max(partition.priority for partition in config.partitions.values())
    for name, partition in config.partitions.items():
        pool_lines = [nodes[pool] for pool in partition.pools]
        shares = [share for node in pool_lines if (share := node.per_gpu)]
        lines.append(
            PartitionLine(
                name=name,
                nodes=",".join(node.nodes for node in pool_lines),
                default=partition.default,
                max_time=partition.max_time,
                suspend_time=config.slurm.suspend_time,
                memory_per_cpu=min(node.memory_per_cpu for node in pool_lines),
                cpus_per_gpu=min((cpus for cpus, _ in shares), default=0),
                memory_per_gpu=min((memory for _, memory in shares), default=0),
                billing=_highest_weights(pool_lines),
                priority=partition.priority,
                grace_seconds=partition.grace_seconds if partition.priority < highest else 0,
                denied_qos=tuple(
                    class_name
                    for class_name, item in config.classes.items()
                    if item.partitions and name not in item.partitions
                ),
                topology=topology_of(config, partition.pools),
            )
        )
    return tuple(lines)


def _highest_weights(pool_lines: list[NodeLine]) -> tuple[tuple[str, Decimal], ...]:
    """Return one weight for each unit: the highest of the pools."""
    weights: dict[str, Decimal] = {}
    for unit, weight in (row for node in pool_lines for row in node.billing):
        weights[unit] = max(weight, weights.get(unit, Decimal(0)))
    return tuple((unit, weight) for unit, weight in weights.items() if weight)
