"""Slurm's nodes and jobs, as slurmctld sees them. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REASON_PREFIX: Final = "toolkit:"
"""Marks the node reasons that are ours. A node whose reason lacks it is an admin's: hands off."""

UNREADABLE: Final = "UNREADABLE"
"""In place of the states of a node or job whose record is odd: nothing is decided on it."""


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
class EndedJob:
    """A batch job that is over. `code`: its exit code, None where a signal ended it."""

    id: int
    flags: frozenset[str]
    nodes: str
    ended_at: float
    code: int | None
    requeue: bool
    admin_comment: str = ""
    started_at: float = 0.0
