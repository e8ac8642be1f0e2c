"""What reconcile decides from, and what it decides: values only."""

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
    from slurmplugins.reconciler.forgotten_nodes import Asked
    from slurmplugins.state.journal_view import JournalView


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the decision may depend on. `seen` and `answered`: when Slurm was asked for its
    nodes, and when it had answered, by the monotonic clock. `now`: by the head's wall clock, as EC2
    has its times; `steady`: the same in the time of what is remembered, where that is another.
    `blind`: the journal can't be read, so nobody knows what runs of resume are at.

    Remembered from pass to pass: `unbacked_since`, since when a node that is up was seen without
    a machine; `known`, machines believed alive at the end of the last pass; `doubted_since`, since
    when the cloud's list is not believed; `woken`, when static nodes were last asked to power up;
    `asked`, when nodes were asked to register again.
    """

    config: BurstConfig
    instances: Sequence[Instance]
    nodes: Mapping[str, Node]
    claims: JournalView
    now: float
    unbacked_since: Mapping[NodeName, float] = field(default_factory=dict)
    health: Mapping[str, InstanceHealth] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    doubted_since: float | None = None
    woken: Mapping[NodeName, float] = field(default_factory=dict)
    asked: Mapping[NodeName, Asked] = field(default_factory=dict)
    seen: float = 0.0
    answered: float = 0.0
    steady: float | None = None
    blind: bool = False

    @property
    def moment(self) -> float:
        """Now, in the time of what is remembered from pass to pass."""
        return self.now if self.steady is None else self.steady

    def age(self, machine: Instance) -> float:
        """Tell how many seconds ago the machine was launched."""
        return self.claims.age(machine, self.now)


@dataclass(frozen=True, slots=True)
class Plan:
    """`note` says why nothing is done where that needs saying; `remarks`, what a person should
    know of that is left alone. `cloud_believed`: the cloud's list may be remembered.
    """

    actions: tuple[Action, ...] = ()
    unbacked_since: Mapping[NodeName, float] = field(default_factory=dict)
    note: str = ""
    remarks: tuple[str, ...] = ()
    cloud_believed: bool = True
    doubted_since: float | None = None
    woken: Mapping[NodeName, float] = field(default_factory=dict)
    asked: Mapping[NodeName, Asked] = field(default_factory=dict)
