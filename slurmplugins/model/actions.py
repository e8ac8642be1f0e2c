"""What the planners may decide, as values. Each action is safe to repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import EndCause, Instance


@dataclass(frozen=True, slots=True)
class Terminate:
    instance: Instance
    cause: EndCause
    why: str


@dataclass(frozen=True, slots=True)
class MarkDown:
    """Give the node's jobs back to the queue, at once."""

    node: NodeName
    reason: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Let nothing new start there; what runs goes on."""

    node: NodeName
    reason: str


@dataclass(frozen=True, slots=True)
class RequestStop:
    """Have the jobs on the node save and stop; `reason` is then the node's."""

    node: NodeName
    reason: str


@dataclass(frozen=True, slots=True)
class Register:
    """Have the node's slurmd register again; slurmctld seems to have forgotten that it did."""

    node: NodeName
    why: str


@dataclass(frozen=True, slots=True)
class PowerDown:
    node: NodeName
    why: str


@dataclass(frozen=True, slots=True)
class ReturnToService:
    """Let Slurm use the powered-down node again, without waiting for SuspendTimeout."""

    node: NodeName
    why: str


@dataclass(frozen=True, slots=True)
class PowerUp:
    """Have Slurm ask for the node's machine, although no job wants it."""

    node: NodeName
    why: str


Action = (
    Terminate | MarkDown | Drain | RequestStop | Register | PowerDown | ReturnToService | PowerUp
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one action; `error` is empty when it worked, `refused` for good."""

    action: Action
    error: str = ""
    refused: bool = False
