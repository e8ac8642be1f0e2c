"""EC2's instances: their states, their health, and which nodes they are. Values only."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.offering import Lifecycle


ROLE_HEAD: Final = "head"
ROLE_COMPUTE: Final = "compute"
ROLE_BUILDER: Final = "builder"

IMPAIRED_SECONDS: Final = 180.0
"""Status checks run every minute; one that fails for three is not a hiccup."""

EVENT_HORIZON: Final = 24 * 3600.0
"""A busy node is drained for an event this near; an idle one for any, since it is replaced free."""

SPOT_TAKEN: Final = frozenset(
    {
        "Server.InsufficientInstanceCapacity",
        "Server.SpotInstanceShutdown",
        "Server.SpotInstanceTermination",
    }
)
"""StateReason codes of a machine that EC2 took back."""

BY_A_PERSON: Final = "Client.UserInitiatedShutdown"
"""Someone called TerminateInstances: nothing is learned about the image from that."""


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
class Assignment:
    """This machine is this node."""

    node: NodeName
    instance_id: str
    address: str
    type: str


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    """What EC2 plans to do to a machine. `code` is EC2's: instance-retirement, system-reboot, …"""

    code: str
    not_before: float


@dataclass(frozen=True, slots=True)
class InstanceHealth:
    """The troubles of one machine.

    `impaired_since`: since when its status checks fail. `notice`: EC2 is taking it back.
    """

    id: str
    impaired_since: float | None = None
    events: tuple[ScheduledEvent, ...] = ()
    notice: bool = False

    def impaired(self, now: float) -> bool:
        """Its checks have failed for long enough to be believed."""
        return self.impaired_since is not None and now - self.impaired_since >= IMPAIRED_SECONDS

    def event(self, now: float, *, busy: bool) -> ScheduledEvent | None:
        """The first event that a node should be emptied for now."""
        due = [item for item in self.events if not busy or item.not_before - now <= EVENT_HORIZON]
        return min(due, key=lambda item: item.not_before, default=None)


@dataclass(frozen=True, slots=True)
class BootFailure:
    """A machine that was paid for and never became a node. `at`: when that was noticed, in
    the time of `steady`; `launched_at` is EC2's.
    """

    instance_id: str
    node: str
    pool: str
    why: str
    at: float
    launched_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Boots:
    """What one pass learned: machines that failed, and by pool until when a machine must have been
    launched for one that is up to say more of the pool than that machine's failure.
    """

    failed: tuple[BootFailure, ...] = ()
    fine_until: Mapping[str, float] = field(default_factory=dict)


def machines_by_node(listed: Iterable[Instance]) -> dict[NodeName, list[Instance]]:
    """The cluster's compute machines by node, oldest first."""
    found: dict[NodeName, list[Instance]] = defaultdict(list)
    for machine in sorted(listed, key=lambda item: (item.launched_at, item.id)):
        if machine.role == ROLE_COMPUTE and machine.node is not None:
            found[machine.node].append(machine)
    return dict(found)


def assignments(machines: Iterable[Instance]) -> list[Assignment]:
    """Who is who, of machines that are some node."""
    return [
        Assignment(item.node, item.id, item.address, item.type)
        for item in machines
        if item.node is not None
    ]
