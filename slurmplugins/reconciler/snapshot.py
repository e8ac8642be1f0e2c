"""The input of reconcile's decision, and its result: values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.model.actions import Action
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance, InstanceHealth
    from slurmplugins.model.node import Node
    from slurmplugins.reconciler.forgotten_nodes import RegistrationRequests
    from slurmplugins.state.journal_view import JournalView


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
    """When EC2's list was first not believed. Remembered."""
    last_power_up: Mapping[NodeName, float] = field(default_factory=dict)
    """When static nodes were last asked to power up. Remembered."""
    registration_requests: Mapping[NodeName, RegistrationRequests] = field(default_factory=dict)
    """When nodes were asked to register again. Remembered."""
    slurm_asked_at: float = 0.0
    """When Slurm was asked for its nodes, by the monotonic clock."""
    slurm_answered_at: float = 0.0
    """When Slurm had answered, by the monotonic clock."""
    persistent_now: float | None = None
    """`now` by the persistent clock, which all remembered times use. None: it is the same."""
    journal_unreadable: bool = False
    """The journal can't be read, so the runs of resume and their claims are unknown."""

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
    """Facts for people about nodes and instances that are left alone."""
    cloud_believed: bool = True
    """EC2's list may be remembered."""
    doubted_since: float | None = None
    last_power_up: Mapping[NodeName, float] = field(default_factory=dict)
    registration_requests: Mapping[NodeName, RegistrationRequests] = field(default_factory=dict)
