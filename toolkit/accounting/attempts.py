"""Attempts of jobs: a requeue makes a new one, and each of them used instances."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.accounting.tres import Tres

REQUEUE_EXIT = 85
"""The exit code of a job that saved its work and asks to be requeued."""

# The mark that a training run writes in its job's comment when a checkpoint is committed.
_CHECKPOINT = re.compile(r"toolkit:checkpoint=(\d{1,12})(?!\d)")

_FAILED_STATES = frozenset(
    {
        "BOOT_FAIL",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REQUEUED",
        "TIMEOUT",
    }
)
# Ended by a person: work is lost only after a known checkpoint.
_CANCELLED_STATES = frozenset({"CANCELLED"})


@dataclass(frozen=True, slots=True)
class Attempt:
    """A row of sacct. Times are seconds since the epoch, None while there is none."""

    key: int  # DBIndex
    job_id: str  # as a plain number (JobIDRaw)
    job: str  # as people write it (JobID), e.g. `4711_3`
    name: str
    user: str
    account: str
    partition: str
    state: str
    exit_codes: tuple[int, ...]
    restarts: int | None
    submitted: int | None
    started: int | None
    ended: int | None
    nodes: tuple[str, ...]
    tres: Tres  # over all nodes
    comments: str = ""  # AdminComment and Comment
    node_count: int = 0  # all nodes, also those that are no instances; 0: not known

    @property
    def requeue_requested(self) -> bool:
        """Return whether the job saved its work, then asked for a requeue."""
        return REQUEUE_EXIT in self.exit_codes

    def checkpoint(self) -> int | None:
        """Return the second of its last committed checkpoint, if known.

        The job leaves a mark. A mark of an earlier attempt, or one that a user made up,
        lies outside the attempt and is ignored.
        """
        if self.started is None:
            return None
        marks = [int(mark) for mark in _CHECKPOINT.findall(self.comments)]
        end = self.ended
        own_marks = [
            second for second in marks if second >= self.started and (end is None or second <= end)
        ]
        return max(own_marks, default=None)

    def lost_from(self) -> int | None:
        """Return the second from which its work is lost, if any.

        An attempt that did not end cleanly loses its work from the last checkpoint on,
        or from its start if no checkpoint is known. A job that asked to be requeued
        lost nothing.
        """
        if self.ended is None or self.started is None or self.requeue_requested:
            return None
        checkpoint = self.checkpoint()
        if self.state in _FAILED_STATES:
            return self.started if checkpoint is None else checkpoint
        return checkpoint if self.state in _CANCELLED_STATES else None


def attempt_numbers(attempts: Iterable[Attempt]) -> dict[int, int]:
    """Return each attempt's number within its job, by DBIndex.

    They are 0, 1, 2 and so on: Slurm's count of restarts, which no report's time changes.
    A sacct without it gives the attempts in their order, those of the report alone.
    """
    by_job: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_job[attempt.job_id].append(attempt)
    numbers = {}
    for job_attempts in by_job.values():
        job_attempts.sort(key=lambda attempt: (attempt.submitted or 0, attempt.key))
        for position, attempt in enumerate(job_attempts):
            numbers[attempt.key] = position if attempt.restarts is None else attempt.restarts
    return numbers
