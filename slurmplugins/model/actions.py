"""Actions that a planner may decide on, as values. Each action is safe to repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import EndCause, Instance


@dataclass(frozen=True, slots=True)
class Terminate:
    """The termination of one instance."""

    instance: Instance
    cause: EndCause
    """Recorded in the ledger of instances."""
    why: str
    """Recorded in the log; the other actions' `why` too."""


@dataclass(frozen=True, slots=True)
class MarkDown:
    """A node set DOWN: slurmctld requeues its jobs at once."""

    node: NodeName
    reason: str


@dataclass(frozen=True, slots=True)
class Drain:
    """A node drained: no new job starts there, running jobs go on."""

    node: NodeName
    reason: str


@dataclass(frozen=True, slots=True)
class RequestStop:
    """A request to the jobs on the node: save, then stop."""

    node: NodeName
    reason: str
    """Becomes the node's reason in Slurm."""


@dataclass(frozen=True, slots=True)
class Register:
    """A node whose slurmd is to register again: slurmctld seems to have forgotten that it did."""

    node: NodeName
    why: str


@dataclass(frozen=True, slots=True)
class PowerDown:
    """A node that Slurm is told to power down."""

    node: NodeName
    why: str


@dataclass(frozen=True, slots=True)
class ReturnToService:
    """A powered-down node that Slurm may use again now, without waiting for SuspendTimeout."""

    node: NodeName
    why: str


@dataclass(frozen=True, slots=True)
class PowerUp:
    """A node that Slurm is told to power up, although no job needs it."""

    node: NodeName
    why: str


Action = (
    Terminate | MarkDown | Drain | RequestStop | Register | PowerDown | ReturnToService | PowerUp
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one action."""

    action: Action
    error: str = ""
    """Empty when the action succeeded."""
    refused: bool = False
    """The action was refused for good: repeating it does not help."""
