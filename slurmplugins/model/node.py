"""Slurm's nodes and jobs, as slurmctld reports them. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REASON_PREFIX: Final = "toolkit:"
"""Begins every node reason that we write. A node with another reason is an admin's: hands off."""

UNREADABLE: Final = "UNREADABLE"
"""Replaces the states of a node or job with a malformed record: no decision is based on it."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as slurmctld reports it."""

    name: str
    flags: frozenset[str]
    """Base state and flags together, in upper case."""
    reason: str = ""
    instance_id: str = ""
    address: str = ""

    @property
    def readable(self) -> bool:
        """Return whether slurmctld's record of the node could be read."""
        return UNREADABLE not in self.flags

    @property
    def powered_down(self) -> bool:
        return "POWERED_DOWN" in self.flags

    @property
    def powering_down(self) -> bool:
        return "POWERING_DOWN" in self.flags

    @property
    def powering_up(self) -> bool:
        return bool(self.flags & {"POWERING_UP", "POWER_UP"}) and not self.powering_off

    @property
    def powering_off(self) -> bool:
        """Return whether Slurm powered the node down or is doing it.

        Slurm no longer uses the node's instance then.
        """
        return self.powered_down or self.powering_down

    @property
    def down(self) -> bool:
        return "DOWN" in self.flags

    @property
    def drain(self) -> bool:
        return "DRAIN" in self.flags

    @property
    def not_responding(self) -> bool:
        """Return whether slurmd does not answer slurmctld at this moment."""
        return "NOT_RESPONDING" in self.flags

    @property
    def invalid(self) -> bool:
        """Return whether slurmd registered as something other than slurm.conf promises."""
        return "INVALID_REG" in self.flags and not self.powering_off

    @property
    def power_up_pending(self) -> bool:
        """Return whether a power-up was requested and is not complete.

        Unlike `powering_up`, also while the node is still powered down or powering down.
        """
        return bool(self.flags & {"POWER_UP", "POWERING_UP"})

    @property
    def busy(self) -> bool:
        """Return whether a job runs on the node or is completing there."""
        return bool(self.flags & {"ALLOCATED", "MIXED", "COMPLETING"})

    @property
    def up(self) -> bool:
        """Return whether slurmd has registered and answers.

        UNKNOWN: slurmd has not registered since slurmctld started.
        """
        unreachable = self.not_responding or "UNKNOWN" in self.flags or not self.readable
        return not (self.powering_off or self.powering_up or self.down or unreachable)

    @property
    def power_down_requested(self) -> bool:
        return bool(self.flags & {"POWER_DOWN", "POWER_DRAIN"})

    @property
    def reason_is_ours(self) -> bool:
        return self.reason.startswith(REASON_PREFIX)

    @property
    def drained_by_a_person(self) -> bool:
        """Return whether a person drained the node.

        That is: neither we did, nor slurmctld because of an invalid registration.
        """
        return self.drain and not self.reason_is_ours and not self.invalid


@dataclass(frozen=True, slots=True)
class Job:
    """A job as slurmctld reports it."""

    id: int
    flags: frozenset[str]
    nodes: str = ""
    restarts: int = 0
    admin_comment: str = ""
    submitted_at: float = 0.0

    @property
    def readable(self) -> bool:
        """Return whether slurmctld's record of the job could be read.

        If not, the job may run on any node.
        """
        return UNREADABLE not in self.flags

    @property
    def running(self) -> bool:
        return "RUNNING" in self.flags


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A batch job that has ended."""

    id: int
    flags: frozenset[str]
    nodes: str
    ended_at: float
    code: int | None
    """The exit code. None where a signal ended the job."""
    requeue: bool
    admin_comment: str = ""
    started_at: float = 0.0
