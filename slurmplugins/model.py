"""The values that pass between modules. All frozen; no behaviour beyond naming what they say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from slurmplugins.wanted import JobAsk, Lifecycle, Offering, Pool

if TYPE_CHECKING:
    from slurmplugins.errors import CloudError
    from slurmplugins.names import NodeName

__all__ = [
    "REASON_PREFIX",
    "UNREADABLE",
    "Assignment",
    "EndCause",
    "Failure",
    "Instance",
    "InstanceState",
    "Job",
    "JobAsk",
    "LaunchRequest",
    "Launched",
    "Lifecycle",
    "Node",
    "Offering",
    "Pool",
    "Refusal",
]

REASON_PREFIX: Final = "toolkit:"
"""Marks the node reasons that are ours. A node whose reason lacks it is an admin's: hands off."""

UNREADABLE: Final = "UNREADABLE"
"""In place of the states of a node or job whose record is odd: nothing is decided on it."""


class InstanceState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"
    UNCLEAR = "unclear"
    """EC2 says a state that is none of these: neither live nor over, and left alone."""

    @property
    def live(self) -> bool:
        """It is, or is about to be, a working machine."""
        # Not looked up in a set: a member's hash is Python code, and nothing is asked more often.
        return self is InstanceState.PENDING or self is InstanceState.RUNNING

    @property
    def over(self) -> bool:
        """Someone has ended it for good; it may still be shutting down."""
        return self is InstanceState.SHUTTING_DOWN or self is InstanceState.TERMINATED

    @property
    def lost(self) -> bool:
        """Surely no working machine; it may be one that stopped."""
        return not (self.live or self is InstanceState.UNCLEAR)


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
class Instance:
    """A machine that carries this cluster's tag, as the cloud describes it.

    `node` is None where the tags name no node that can be parsed. `end_code` is the cloud's code
    for why it ended, and `ended_at` when, as far as the cloud says. `unclear`: EC2's word for a
    state that is none we know.
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
    unclear: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as slurmctld sees it. `flags` holds base state and flags alike, upper case."""

    name: str
    flags: frozenset[str]
    reason: str = ""
    instance_id: str = ""
    address: str = ""

    @property
    def readable(self) -> bool:
        """Whether slurmctld's record of the node could be understood."""
        return UNREADABLE not in self.flags

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
        """slurmd has registered and answers. UNKNOWN: not since slurmctld started."""
        unheard = self.silent or "UNKNOWN" in self.flags or not self.readable
        return not (self.off or self.powering_up or self.down or unheard)

    @property
    def power_down_asked(self) -> bool:
        return bool(self.flags & {"POWER_DOWN", "POWER_DRAIN"})

    @property
    def ours(self) -> bool:
        return self.reason.startswith(REASON_PREFIX)

    @property
    def drained_by_a_person(self) -> bool:
        """Neither by us nor by slurmctld for what slurmd registered as."""
        return self.drain and not self.ours and not self.invalid


@dataclass(frozen=True, slots=True)
class Job:
    """A job as slurmctld sees it."""

    id: int
    flags: frozenset[str]
    nodes: str = ""
    restarts: int = 0
    admin_comment: str = ""
    submitted_at: float = 0.0

    @property
    def readable(self) -> bool:
        """Whether slurmctld's record of the job could be understood; else it may be anywhere."""
        return UNREADABLE not in self.flags

    @property
    def running(self) -> bool:
        return "RUNNING" in self.flags


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """One call for machines for these nodes, named by their order; at least `least`, or none.

    `others` are further offerings of the same lifecycle and zone that will do as well: the call is
    then a fleet. An empty `subnet` is one that the launch template says.
    """

    attempt: str
    cluster: str
    pool: str
    partition: str
    launch_template: str
    subnet: str
    offering: Offering
    nodes: tuple[NodeName, ...]
    others: tuple[Offering, ...] = ()
    least: int = 0

    @property
    def offerings(self) -> tuple[Offering, ...]:
        return (self.offering, *self.others)

    @property
    def at_least(self) -> int:
        return self.least or len(self.nodes)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the cloud said about one offering of a launch; with `passed_on`, to another job."""

    offering: Offering
    error: CloudError
    passed_on: bool = False


@dataclass(frozen=True, slots=True)
class Launched:
    """The machines of the first nodes of a request, in order, and what was refused on the way to
    them.
    """

    machines: tuple[Instance, ...]
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """This machine is this node."""

    node: NodeName
    instance_id: str
    address: str
    type: str


@dataclass(frozen=True, slots=True)
class Failure:
    """These nodes can't be had. `code` is the cloud's word, empty when it was not the cloud.
    `hold`: waiting does not help, a person must act; the job is to be held. `ended`: those of them
    that had a machine, which ends with this.
    """

    job: int | None
    nodes: tuple[NodeName, ...]
    slug: str
    code: str = ""
    message: str = ""
    hold: bool = False
    ended: tuple[NodeName, ...] = ()

    @property
    def reason(self) -> str:
        """What Slurm shows for the node."""
        return f"{REASON_PREFIX} {self.slug}" + (f" ({self.code})" if self.code else "")
