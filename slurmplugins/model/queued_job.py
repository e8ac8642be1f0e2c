"""Jobs of the queue, and the nodes and partitions that they wait for. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

from slurmplugins.model.node import task_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Request:
    """The resources that a job requests over all of its nodes."""

    cpus: int = 1
    memory_mib: int = 0
    nodes: int = 1
    most_nodes: int = 0
    """The largest number of nodes that it takes; 0: any."""
    gpus: int = 0
    gpu: str = ""
    """The kind of GPU, where it names one."""
    other_gres: tuple[str, ...] = ()
    """Names of GRES that are no GPUs. No pool has any."""
    cpus_of_node: int = 1
    """CPUs that one node must have at least."""
    features: tuple[str, ...] = ()
    """Features that each node must have."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits, runs, or ended some minutes ago. Times are epoch seconds."""

    id: int
    label: str
    """The name by which `scontrol update` changes this record alone."""
    states: frozenset[str]
    partitions: tuple[str, ...]
    """Of a running job, the first is the partition in use."""
    account: str = ""
    qos: str = ""
    user: str = ""
    request: Request = field(default_factory=Request)
    priority: int = 1
    reason: str = ""
    submitted_at: float = 0.0
    eligible_at: float | None = None
    start_at: float | None = None
    """Of a waiting job, the start that backfill expects."""
    end_at: float | None = None
    time_limit: float | None = None
    """Seconds; None: no limit."""
    deadline: float | None = None
    tasks: int = 1
    """Tasks of an array that wait in this record."""
    array: int = 0
    restarts: int = 0
    held: bool = False
    batch: bool = True
    may_requeue: bool = True
    het_job: bool = False
    required_nodes: str = ""
    licenses: str = ""
    reservation: str = ""
    constraint: str = ""
    """Its features as the user wrote them."""
    comment: str = ""

    @property
    def pending(self) -> bool:
        return "PENDING" in self.states

    @property
    def running(self) -> bool:
        """Return whether it has nodes, also while they boot."""
        return bool(self.states & {"RUNNING", "SUSPENDED"})

    @property
    def booting(self) -> bool:
        return "CONFIGURING" in self.states

    @property
    def family(self) -> int:
        """Return the array's number, or the job's own."""
        return self.array or self.id


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one shape in one partition."""

    count: int
    cpus: int
    memory_mib: int
    gpus: Mapping[str, int] = field(default_factory=dict)
    """GPUs of a node by kind; `""` is a kind without a name."""
    features: frozenset[str] = frozenset()
    usd_per_hour: str = ""
    """The dearest price of a node; empty: not known, `0`: a rack's."""

    def nodes_for(self, request: Request) -> int | None:
        """Return the fewest of these nodes that do, if the job fits."""
        gpus_of_node = self.gpus.get(request.gpu, 0) if request.gpu else sum(self.gpus.values())
        if (
            self.cpus < request.cpus_of_node
            or not self.features.issuperset(request.features)
            or not self.cpus
            or (request.gpus and not gpus_of_node)
            or request.other_gres
            or (request.memory_mib and not self.memory_mib)
        ):
            return None
        nodes = max(
            request.nodes,
            ceil(request.cpus / self.cpus),
            ceil(request.memory_mib / self.memory_mib) if request.memory_mib else 1,
            ceil(request.gpus / gpus_of_node) if request.gpus else 1,
        )
        if nodes > self.count or (request.most_nodes and nodes > request.most_nodes):
            return None
        return nodes

    def most_nodes_for(self, request: Request) -> int | None:
        """Return the most of these nodes that it takes, if it fits.

        Of `--nodes=2-4` Slurm takes four where it can (sbatch(1)).
        """
        nodes = self.nodes_for(request)
        return None if nodes is None else max(nodes, min(request.most_nodes, self.count))


@dataclass(frozen=True, slots=True)
class QueuePartition:
    """A partition, as slurmctld has it, with its nodes."""

    name: str
    up: bool = True
    max_time: float | None = None
    """Seconds; None: no limit."""
    tier: int = 1
    """PriorityTier."""
    factor: int = 1
    """PriorityJobFactor."""
    groups: tuple[NodeGroup, ...] = ()
    allowed_accounts: tuple[str, ...] = ()
    denied_accounts: tuple[str, ...] = ()
    allowed_qos: tuple[str, ...] = ()
    denied_qos: tuple[str, ...] = ()
    for_groups: bool = False
    """AllowGroups is set. slurmctld does not look at it when an admin changes a job."""

    def allows(self, job: QueuedJob) -> bool:
        """Return whether the job's account and QOS may use the partition."""
        return not self.for_groups and (
            (not self.allowed_accounts or job.account in self.allowed_accounts)
            and job.account not in self.denied_accounts
            and (not self.allowed_qos or job.qos in self.allowed_qos)
            and job.qos not in self.denied_qos
        )

    def can_ever_run(self, job: QueuedJob) -> bool:
        """Return whether its nodes, also busy ones, suffice for the job.

        Nodes of several shapes count together: then a wrong answer is that they suffice.
        """
        if self.max_time is not None and (job.time_limit or 0) > self.max_time:
            return False
        return fits_together(self.groups, job.request)


def fits_together(groups: Iterable[NodeGroup], request: Request) -> bool:
    """Return whether all groups together have what the job requests."""
    single = Request(
        cpus_of_node=request.cpus_of_node,
        gpus=min(request.gpus, 1),
        gpu=request.gpu,
        features=request.features,
    )
    usable = [group for group in groups if group.nodes_for(single) is not None]
    nodes = sum(group.count for group in usable)
    most_nodes = request.most_nodes or nodes
    cpus = _largest(most_nodes, ((group.cpus, group.count) for group in usable))
    memory = _largest(most_nodes, ((group.memory_mib, group.count) for group in usable))
    gpus = _largest(
        most_nodes,
        (
            (
                group.gpus.get(request.gpu, 0) if request.gpu else sum(group.gpus.values()),
                group.count,
            )
            for group in usable
        ),
    )
    return (
        nodes >= request.nodes
        and cpus >= request.cpus
        and memory >= request.memory_mib
        and gpus >= request.gpus
    )


def _largest(nodes: int, amounts: Iterable[tuple[int, int]]) -> int:
    """Return the sum of the largest amounts of that many nodes."""
    total = 0
    for amount, count in sorted(amounts, reverse=True):
        taken = min(count, nodes)
        total, nodes = total + amount * taken, nodes - taken
    return total


def count_tasks(text: str) -> int:
    """Return the number of tasks in a list such as `0-3,7%2`.

    A list that Slurm cut off has more than are counted.
    """
    return max(sum(map(len, task_ranges(text))), 1)


def tasks_at_once(text: str) -> int:
    """Return how many tasks may run at once, of `0-3,7%2` two."""
    most = text.partition("%")[2]
    tasks = count_tasks(text)
    return min(tasks, int(most)) if most.isdecimal() and int(most) else tasks
