"""Slurm's nodes, jobs and job ids, as slurmctld reports them. Values only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BadName
from slurmplugins.model.instance import EndCause

if TYPE_CHECKING:
    from collections.abc import Iterator

REASON_PREFIX: Final = "toolkit:"
"""Begins every node reason that we write. A node with another reason is an admin's: hands off."""

SPOT_INTERRUPTION: Final = "spot interruption"
INTERRUPTION_REASON: Final = f"{REASON_PREFIX} {SPOT_INTERRUPTION}"
"""Begins the reason of a node whose instance EC2 has announced to take."""

UNREADABLE: Final = "UNREADABLE"
"""Replaces the states of a node or job with a malformed record: no decision is based on it."""

_JOB_ID: Final = re.compile(r"([0-9]{1,11})(?:_([0-9]{1,10}))?", re.ASCII)

_TASK_RANGE: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10})(?::([0-9]{1,10}))?)?", re.ASCII)
_CUT: Final = "..."
"""Slurm ends a list with it that was too long to print."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as slurmctld reports it."""

    name: str
    flags: frozenset[str]
    """Base state and flags together, in upper case."""
    reason: str = ""
    instance_id: str = ""
    address: str = ""
    topology: str = ""
    """The topology and the switches that Slurm was told of the node, from 25.11 on."""

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
    def interruption_announced(self) -> bool:
        """Return whether EC2 has announced to take its instance."""
        return self.reason.startswith(INTERRUPTION_REASON)

    @property
    def power_down_cause(self) -> EndCause:
        """Return why its instance ends once Slurm has powered it down."""
        return EndCause.NOTICE if self.interruption_announced else EndCause.SUSPEND

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


@dataclass(frozen=True, slots=True)
class JobId:
    """A job's number, or an array's number with one of its tasks.

    The last task of a job array has the array's own number. By that number scontrol shows, updates,
    holds and requeues every task. Therefore a task is named ARRAY_TASK. All pending tasks share one
    record of that number, until they start one by one.
    """

    number: int
    task: int | None = None

    def __str__(self) -> str:
        return str(self.number) if self.task is None else f"{self.number}_{self.task}"


def parse_job_id(text: str) -> JobId:
    """Read `4711` or `4711_3`. Raises BadName."""
    match = _JOB_ID.fullmatch(text)
    if match is None:
        raise BadName(f"not a job's number: {text[:80]!r}")
    return JobId(int(match[1]), None if match[2] is None else int(match[2]))


def task_ranges(tasks: str) -> Iterator[range]:
    """Yield the ranges of a list of tasks, such as `0-6:2,9%2`."""
    for part in tasks.partition("%")[0].removesuffix(_CUT).split(","):
        if match := _TASK_RANGE.fullmatch(part):
            first, last = int(match[1]), int(match[2] or match[1])
            yield range(first, last + 1, int(match[3] or 1) or 1)


def contains_task(tasks: str, task: int) -> bool:
    """Return whether the list of tasks holds a task.

    A list that Slurm cut off holds every task after its last one.
    """
    last = -1
    for tasks_of_part in task_ranges(tasks):
        if task in tasks_of_part:
            return True
        last = tasks_of_part.stop - 1
    return tasks.partition("%")[0].endswith(_CUT) and task > last
