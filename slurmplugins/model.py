"""The values that pass between modules. All frozen; no behaviour beyond naming what they say."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmplugins.names import NodeName

REASON_PREFIX: Final = "toolkit:"
"""Marks the node reasons that are ours. A node whose reason lacks it is an admin's: hands off."""


class Lifecycle(StrEnum):
    SPOT = "spot"
    ON_DEMAND = "on-demand"


class InstanceState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"

    @property
    def live(self) -> bool:
        """It is, or is about to be, a working machine."""
        return self in {InstanceState.PENDING, InstanceState.RUNNING}

    @property
    def over(self) -> bool:
        """Someone has ended it for good; it may still be shutting down."""
        return self in {InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED}


class EndCause(StrEnum):
    """Why a machine ended, as the ledger has it."""

    SUSPEND = "suspend"
    INTERRUPTION = "interruption"
    RESUME_FAILED = "resume-failed"
    """Started, and given back because the rest of its job could not be had."""
    BOOT_FAILED = "boot-failed"
    """It never came up as a node."""
    ORPHAN = "orphan"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Offering:
    """Where a node's shape can be had. `price` is USD an hour, for the ledger only."""

    type: str
    lifecycle: Lifecycle
    zone: str
    price: str

    @property
    def key(self) -> str:
        return f"{self.lifecycle}:{self.type}:{self.zone}"


@dataclass(frozen=True, slots=True)
class Pool:
    """Slurm nodes of one shape, and the offerings that fill them, in order of preference."""

    name: str
    nodes: tuple[NodeName, ...]
    partition: str
    launch_template: str
    subnets: Mapping[str, str]
    offerings: tuple[Offering, ...]


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine that carries this cluster's tag, as the cloud describes it.

    `node` is None where the tags name no node that can be parsed. `end_code` is the cloud's code
    for why it ended, and `ended_at` when, as far as the cloud says.
    """

    id: str
    state: InstanceState
    role: str
    node: NodeName | None
    pool: str
    partition: str
    attempt: str
    type: str
    zone: str
    lifecycle: Lifecycle
    address: str
    price: str
    launched_at: float
    ended_at: float | None = None
    end_code: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as slurmctld sees it. `flags` holds base state and flags alike, upper case."""

    name: str
    flags: frozenset[str]
    reason: str = ""
    instance_id: str = ""
    address: str = ""

    @property
    def powered_down(self) -> bool:
        return "POWERED_DOWN" in self.flags

    @property
    def powering_down(self) -> bool:
        return "POWERING_DOWN" in self.flags

    @property
    def powering_up(self) -> bool:
        return bool(self.flags & {"POWERING_UP", "POWER_UP"}) and not self.off

    @property
    def off(self) -> bool:
        """Slurm has let go of the machine: it was, or is being, powered down."""
        return self.powered_down or self.powering_down

    @property
    def down(self) -> bool:
        return "DOWN" in self.flags

    @property
    def drain(self) -> bool:
        return "DRAIN" in self.flags

    @property
    def silent(self) -> bool:
        """slurmd does not answer slurmctld at this moment."""
        return "NOT_RESPONDING" in self.flags

    @property
    def invalid(self) -> bool:
        """slurmd registered as something other than slurm.conf promises."""
        return "INVALID_REG" in self.flags and not self.off

    @property
    def waking(self) -> bool:
        """Power-up is asked for and not begun."""
        return bool(self.flags & {"POWER_UP", "POWERING_UP"})

    @property
    def busy(self) -> bool:
        """A job is on it, or is leaving it."""
        return bool(self.flags & {"ALLOCATED", "MIXED", "COMPLETING"})

    @property
    def up(self) -> bool:
        """slurmd has registered and answers."""
        return not (self.off or self.powering_up or self.down or self.silent)

    @property
    def power_down_asked(self) -> bool:
        return bool(self.flags & {"POWER_DOWN", "POWER_DRAIN"})

    @property
    def ours(self) -> bool:
        return self.reason.startswith(REASON_PREFIX)


@dataclass(frozen=True, slots=True)
class Job:
    """A job as slurmctld sees it."""

    id: int
    flags: frozenset[str]
    nodes: str = ""
    restarts: int = 0
    admin_comment: str = ""

    @property
    def running(self) -> bool:
        return "RUNNING" in self.flags


@dataclass(frozen=True, slots=True)
class JobAsk:
    """The nodes one job waits for. `job` is None for nodes that no job is known to want."""

    job: int | None
    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One all-or-nothing call: `len(nodes)` machines of one offering, named by their order."""

    attempt: str
    cluster: str
    pool: str
    partition: str
    launch_template: str
    subnet: str
    offering: Offering
    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """This machine is this node."""

    node: NodeName
    instance_id: str
    address: str
    type: str


@dataclass(frozen=True, slots=True)
class Failure:
    """These nodes can't be had. `code` is the cloud's word, empty when it was not the cloud."""

    job: int | None
    nodes: tuple[NodeName, ...]
    slug: str
    code: str = ""
    message: str = ""

    @property
    def reason(self) -> str:
        """What Slurm shows for the node."""
        return f"{REASON_PREFIX} {self.slug}" + (f" ({self.code})" if self.code else "")


@dataclass(frozen=True, slots=True)
class PoolAsk:
    """Nodes of one pool that one job waits for."""

    pool: Pool
    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True)
class JobLaunch:
    """Machines to start for one job, all or none. `nodes` are all that the job waits for, those
    that have a machine already included: when the rest can't be had, they are given back too.
    """

    job: int | None
    asks: tuple[PoolAsk, ...]
    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One machine's life, as accounting reads it. Field names are the ledger's."""

    instance_id: str
    node: str
    pool: str
    partition: str
    attempt: str
    type: str
    zone: str
    lifecycle: str
    launched_at: float
    price: str
    running_at: float | None = None
    ended_at: float | None = None
    end_cause: str | None = None


@dataclass(frozen=True, slots=True)
class Claims:
    """What the journal says about nodes and machines at one moment.

    `busy`: nodes a live run of resume is launching for. `doubtful`: nodes of recent launches whose
    run died, or got no answer, before it knew the outcome. `launched`: machines launched so
    recently that the cloud may not list them yet. `ended`: machines we have decided to end, and
    why.
    """

    busy: frozenset[NodeName] = frozenset()
    doubtful: frozenset[NodeName] = frozenset()
    launched: Mapping[str, Assignment] = field(default_factory=dict)
    ended: Mapping[str, EndCause] = field(default_factory=dict)
