"""Attempts of jobs: a requeue makes a new one, and each of them used instances."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.accounting.tres import Tres

REQUEUE_EXIT = 85
"""The exit code of a job that saved its work and asks to be requeued."""

# The mark that a training run writes in its job's comment when a checkpoint is committed.
_CHECKPOINT = re.compile(r"toolkit:checkpoint=(\d{1,12})(?!\d)", re.ASCII)

FAILED_STATES = frozenset(
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
FINAL_STATES = frozenset({"COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"})
"""States that an attempt reaches only after it ran."""

# Ended by a person: work is lost only after a known checkpoint.
CANCELLED_STATES = frozenset({"CANCELLED"})


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

    @property
    def certainly_ran(self) -> bool:
        """Return whether it certainly ran, for a second or longer.

        Any other attempt may have ended because it got no instances.
        """
        is_final = self.state in FINAL_STATES
        return (is_final or self.requeue_requested) and self.ended != self.started

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
        if self.state in FAILED_STATES:
            return self.started if checkpoint is None else checkpoint
        return checkpoint if self.state in CANCELLED_STATES else None


def jobs_of(attempts: Iterable[Attempt]) -> list[list[Attempt]]:
    """Return the attempts of each job, in their order.

    Ids of jobs begin anew when slurmctld has lost its state. Two jobs with one id are
    told apart by their user, or by a count of restarts that does not rise.
    """
    by_id: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_id[attempt.job_id].append(attempt)
    jobs: list[list[Attempt]] = []
    for same_id in by_id.values():
        same_id.sort(key=lambda attempt: (attempt.submitted or 0, attempt.key))
        for position, attempt in enumerate(same_id):
            if position and _is_requeue(same_id[position - 1], attempt):
                jobs[-1].append(attempt)
            else:
                jobs.append([attempt])
    return jobs


def attempt_numbers(attempts: Iterable[Attempt]) -> dict[int, int]:
    """Return each attempt's number within its job, by DBIndex.

    They are 0, 1, 2 and so on: Slurm's count of restarts, which no report's time changes.
    A sacct without it gives the attempts in their order, those of the report alone.
    """
    return {
        attempt.key: position if attempt.restarts is None else attempt.restarts
        for job in jobs_of(attempts)
        for position, attempt in enumerate(job)
    }


def job_labels(attempts: Iterable[Attempt]) -> dict[int, str]:
    """Return the name of each attempt's job in the report, by DBIndex.

    It is the job's id, with the time of its submission where two jobs have one id.
    """
    jobs = jobs_of(attempts)
    jobs_by_id = Counter(job[0].job_id for job in jobs)
    labels: dict[int, str] = {}
    for job in jobs:
        first = job[0]
        submitted = datetime.fromtimestamp(first.submitted or 0, UTC)
        is_shared = jobs_by_id[first.job_id] > 1
        label = f"{first.job_id} ({submitted:%Y-%m-%d %H:%M:%S})" if is_shared else first.job_id
        labels |= {attempt.key: label for attempt in job}
    return labels


def _is_requeue(earlier: Attempt, later: Attempt) -> bool:
    if earlier.user != later.user:
        return False
    if earlier.restarts is None or later.restarts is None:
        return True
    return later.restarts > earlier.restarts
