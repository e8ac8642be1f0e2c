"""The input of reconcile's decision, whether it is plausible, and the result. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.model.actions import Action
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance, InstanceHealth
    from slurmplugins.model.node import Node
    from slurmplugins.state.journal_view import JournalView


LEAST_SHARE: Final = 0.5
"""Share of burst.json's nodes, or of instances known to live. A shorter list is not trusted."""

FEWEST_MISSING: Final = 3
"""Instances that must have vanished. EC2 forgets one or two instances without being wrong."""

BELIEVED_AFTER: Final = 600.0
"""Seconds after which an unchanged list is trusted, however odd. Without this limit, nothing would
be terminated ever again."""


@dataclass(frozen=True, slots=True)
class RegistrationRequests:
    """The times at which a node was asked to register again."""

    first: float
    """The first request."""
    last: float
    """The latest request."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the decision may depend on."""

    config: BurstConfig
    instances: Sequence[Instance]
    nodes: Mapping[str, Node]
    journal: JournalView
    now: float
    """The head's wall clock, since EC2's times are by a wall clock."""
    without_instance_since: Mapping[NodeName, float] = field(default_factory=dict)
    """When a node that is up was first seen without an instance. Remembered from pass to pass."""
    health: Mapping[str, InstanceHealth] = field(default_factory=dict)
    known_instances: frozenset[str] = frozenset()
    """Instances that lived at the end of the last pass. Remembered."""
    doubted_since: float | None = None
    """When EC2's list was first not trusted. Remembered."""
    last_power_up: Mapping[NodeName, float] = field(default_factory=dict)
    """When Slurm was last requested to power up a static node. Remembered."""
    registration_requests: Mapping[NodeName, RegistrationRequests] = field(default_factory=dict)
    """When nodes were asked to register again. Remembered."""
    slurm_asked_at: float = 0.0
    """When Slurm was asked for its nodes, by the monotonic clock."""
    slurm_answered_at: float = 0.0
    """When Slurm had answered, by the monotonic clock."""
    persistent_now: float | None = None
    """`now` by the persistent clock, which all remembered times use. None: it is the same."""
    journal_unreadable: bool = False
    """The journal can't be read, so the claims of each ResumeProgram are unknown."""

    @property
    def moment(self) -> float:
        """Return the current time, by the clock of remembered times."""
        return self.now if self.persistent_now is None else self.persistent_now

    def age(self, instance: Instance) -> float:
        """Return the instance's age in seconds since its launch."""
        return self.journal.age(instance, self.now)


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of the decision."""

    actions: tuple[Action, ...] = ()
    without_instance_since: Mapping[NodeName, float] = field(default_factory=dict)
    blocked_by: str = ""
    """Why nothing is done; empty if there is nothing to explain."""
    warnings: tuple[str, ...] = ()
    """For people: nodes and instances to which nothing is done, and why."""
    cloud_believed: bool = True
    """EC2's list may be remembered."""
    doubted_since: float | None = None
    last_power_up: Mapping[NodeName, float] = field(default_factory=dict)
    registration_requests: Mapping[NodeName, RegistrationRequests] = field(default_factory=dict)


def slurm_doubt(snapshot: Snapshot) -> str:
    """Return why Slurm's list of nodes is untrusted, or nothing."""
    names = snapshot.config.pool_by_node
    listed = sum(1 for name in names if name in snapshot.nodes and snapshot.nodes[name].readable)
    if listed < len(names) * LEAST_SHARE:
        return f"Slurm lists {listed} of {len(names)} nodes: not trusted"
    return ""


def cloud_doubt(snapshot: Snapshot) -> str:
    """Return why EC2's list of instances is untrusted, or nothing.

    EC2 lists terminated instances for about an hour. So an instance that is known to live should be
    listed in some state. It is known from the last pass, or from a slurmd on it that answers.
    """
    expected_ids = _expected_ids(snapshot)
    missing = len(expected_ids - {instance.id for instance in snapshot.instances})
    if missing >= FEWEST_MISSING and missing > len(expected_ids) * LEAST_SHARE:
        return f"EC2 does not list {missing} of {len(expected_ids)} live instances: not trusted"
    return ""


def _expected_ids(snapshot: Snapshot) -> frozenset[str]:
    journal = snapshot.journal
    responding_ids = {
        node.instance_id
        for name in snapshot.config.pool_by_node
        if (node := snapshot.nodes.get(name)) is not None and node.instance_id and node.up
    }
    # A slurmd may answer before EC2 lists its instance.
    known_ids = snapshot.known_instances | responding_ids - journal.recent_launches.keys()
    return known_ids - journal.termination_causes.keys()
