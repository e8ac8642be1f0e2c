"""Instances and what EC2 offers: pools, offerings, states, health, interruptions. Values only."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurmplugins.model.hostlist import NodeName


ROLE_HEAD: Final = "head"
ROLE_COMPUTE: Final = "compute"
ROLE_BUILDER: Final = "builder"
ROLE_LOGIN: Final = "login"

IMPAIRED_SECONDS: Final = 180.0
"""Status checks run every minute; a failure of three minutes is not transient."""

EVENT_HORIZON: Final = 24 * 3600.0
"""Seconds before a scheduled event at which a busy node is drained.

An idle node is drained for any event, since replacing it costs no work.
"""

SPOT_INTERRUPTION_CODES: Final = frozenset(
    {
        "Server.InsufficientInstanceCapacity",
        "Server.SpotInstanceShutdown",
        "Server.SpotInstanceTermination",
    }
)
"""StateReason codes of an instance that EC2 took back."""

LAUNCH_FAILURE_CODES: Final = frozenset(
    {
        "Client.InternalError",
        "Client.InvalidSnapshot.NotFound",
        "Client.VolumeLimitExceeded",
        "Server.InternalError",
    }
)
"""StateReason codes of an instance that ended during its launch, and so never ran.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html
"""

USER_SHUTDOWN_CODE: Final = "Client.UserInitiatedShutdown"
"""StateReason code after TerminateInstances. It tells nothing about the image."""


NOTICE_SECONDS: Final = 120.0
"""EC2's usual warning time. Used where the time in the notice can't be read."""


class Lifecycle(StrEnum):
    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True)
class Offering:
    """An instance type in one zone, spot or on demand, that fits a node's shape."""

    type: str
    lifecycle: Lifecycle
    zone: str
    price: str
    """USD an hour, as last known; "0" if unknown."""
    reservation: str = ""
    """The capacity reservation that the instance uses, if any."""
    block: bool = False
    """The reservation is a capacity block, which EC2 sells through a market of its own."""

    @property
    def key(self) -> str:
        kind = self.reservation or self.lifecycle
        return f"{kind}:{self.type}:{self.zone}"


@dataclass(frozen=True, slots=True)
class Pool:
    """Slurm nodes of one shape, with the offerings that can provide them."""

    name: str
    nodes: tuple[NodeName, ...]
    partition: str
    launch_template: str
    subnets: Mapping[str, str]
    """Subnet ids by zone."""
    offerings: tuple[Offering, ...]
    """In order of preference."""
    one_by_one: bool = False
    """Instance types are tried in their order; EC2 never chooses among them."""
    zone_templates: Mapping[str, str] = field(default_factory=dict)
    """Launch templates by zone that state the subnet themselves (placement groups, EFA)."""
    max_spot_share: float = 1.0
    """The largest share of the pool's hourly cost that spot may have, 0 to 1."""
    in_topology: bool = False
    """Slurm is told where the instances are in EC2's network."""


OfferingGroup = tuple[Offering, ...]
"""Offerings of one lifecycle in one zone. One EC2 call covers them all, and any of them will do."""


class PolicyName(StrEnum):
    """An order in which offerings are tried. AS_LISTED is the order of cluster.yaml."""

    AS_LISTED = "as-listed"
    SPOT_ONLY = "spot-only"
    SPOT_FIRST = "spot-first"
    ON_DEMAND_AFTER = "on-demand-after"
    ON_DEMAND_ONLY = "on-demand-only"
    CHEAPEST_FIRST = "cheapest-first"


@dataclass(frozen=True, slots=True)
class Policy:
    """The launch policy of a partition."""

    name: PolicyName = PolicyName.AS_LISTED
    on_demand_after: float = 0.0
    """Seconds that a job waits for spot before it may use on-demand instances."""


class InstanceState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    STOPPING = "stopping"
    STOPPED = "stopped"
    UNCLEAR = "unclear"
    """EC2 reports a state that is not in this list: neither live nor terminated, and left alone."""

    @property
    def live(self) -> bool:
        """Return whether the instance works or is about to."""
        # Not looked up in a set: a member's hash is Python code, and this is read most often.
        return self is InstanceState.PENDING or self is InstanceState.RUNNING

    @property
    def terminated(self) -> bool:
        """Return whether it was terminated; it may still be shutting down."""
        return self is InstanceState.SHUTTING_DOWN or self is InstanceState.TERMINATED

    @property
    def stopped(self) -> bool:
        """Return whether it is stopped, or about to be."""
        return self is InstanceState.STOPPING or self is InstanceState.STOPPED

    @property
    def not_working(self) -> bool:
        """Return whether it surely does not work: terminated, stopping or stopped."""
        return not (self.live or self is InstanceState.UNCLEAR)


class EndCause(StrEnum):
    """The cause of an instance's termination, as the ledger records it."""

    SUSPEND = "suspend"
    INTERRUPTION = "interruption"
    NOTICE = "notice"
    """Terminated by us after EC2's notice, ahead of the interruption: its jobs had stopped."""
    RESUME_FAILED = "resume-failed"
    """Launched, then terminated because the rest of its job's nodes could not be had."""
    BOOT_FAILED = "boot-failed"
    """The instance never registered as a node."""
    LAUNCH_FAILED = "launch-failed"
    """EC2 ended the instance during its launch. It never ran, and is not billed."""
    ORPHAN = "orphan"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance that carries this cluster's tag, as EC2 describes it."""

    id: str
    state: InstanceState
    role: str
    node: NodeName | None
    """None where the tags hold no node name that can be parsed."""
    pool: str
    partition: str
    attempt: str
    """The id of the launch, from its tag."""
    type: str
    zone: str
    lifecycle: Lifecycle
    address: str
    price: str
    """USD an hour at the launch, from its tag."""
    launched_at: float
    ended_at: float | None = None
    """None where EC2 does not report the time."""
    stopped_at: float | None = None
    """Of an instance that is stopping or stopped; None where EC2 does not report the time."""
    end_code: str = ""
    """EC2's StateReason code for the termination."""
    unclear: str = ""
    """EC2's own word for a state that InstanceState does not know."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """An instance and the node that it is."""

    node: NodeName
    instance_id: str
    address: str
    type: str


class Kind(StrEnum):
    SPOT = "spot-interruption"
    REBALANCE = "rebalance-recommendation"
    SCHEDULED = "scheduled-event"


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice from EC2 about one instance."""

    kind: Kind
    action: str
    """EC2's word for the event at the deadline, such as `terminate`."""
    deadline: float
    """The time at which EC2 takes the instance. For a rebalance: when EC2 announced the risk."""


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    """An event that EC2 plans for an instance."""

    code: str
    """EC2's code: instance-retirement, system-reboot, …"""
    not_before: float


@dataclass(frozen=True, slots=True)
class InstanceHealth:
    """The health problems of one instance."""

    id: str
    impaired_since: float | None = None
    """The time since which its status checks fail."""
    events: tuple[ScheduledEvent, ...] = ()
    notice: bool = False
    """EC2 is taking the instance back."""

    def impaired(self, now: float) -> bool:
        """Return whether its status checks have failed for IMPAIRED_SECONDS."""
        return self.impaired_since is not None and now - self.impaired_since >= IMPAIRED_SECONDS

    def event(self, now: float, *, busy: bool) -> ScheduledEvent | None:
        """Return the first event for which the node should be drained now."""
        due = [item for item in self.events if not busy or item.not_before - now <= EVENT_HORIZON]
        return min(due, key=lambda item: item.not_before, default=None)


@dataclass(frozen=True, slots=True)
class BootFailure:
    """An instance that was paid for and never became a node."""

    instance_id: str
    node: str
    pool: str
    why: str
    at: float
    """The time at which reconcile noticed, by `state.persistent_clock`."""
    launched_at: float = 0.0
    """EC2's launch time."""


@dataclass(frozen=True, slots=True)
class BootResults:
    """Boot results that one reconcile pass learned."""

    failures: tuple[BootFailure, ...] = ()
    healthy_until: Mapping[str, float] = field(default_factory=dict)
    """By pool: the launch time of its newest instance that is up, plus ResumeTimeout.
    A failed instance launched before that time tells about itself, and not about the pool.
    """


def instances_by_node(instances: Iterable[Instance]) -> dict[NodeName, list[Instance]]:
    """Return the compute instances of each node, oldest first."""
    by_node: dict[NodeName, list[Instance]] = defaultdict(list)
    for instance in sorted(instances, key=lambda item: (item.launched_at, item.id)):
        if instance.role == ROLE_COMPUTE and instance.node is not None:
            by_node[instance.node].append(instance)
    return dict(by_node)


def assignments(instances: Iterable[Instance]) -> list[Assignment]:
    """Return an assignment for each instance that has a node."""
    return [
        Assignment(item.node, item.id, item.address, item.type)
        for item in instances
        if item.node is not None
    ]
