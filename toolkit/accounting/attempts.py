"""Attempts of jobs: a requeue makes a new one, and each of them used instances."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.accounting.tres import Tres

RESIZED = "RESIZING"
"""The state of a row that ended because its job got other nodes; the job's next row goes on.

slurmdbd gives both the second of the change: the end of one, submission and start of the next
(Slurm's as_mysql_job.c, `resize_time`).
"""

REQUEUE_EXIT = 85
"""The exit code of a job that saved its work and asks to be requeued."""

# The mark that a training run writes in its job's comment when a checkpoint is committed.
_MARK = "toolkit:checkpoint="
_CHECKPOINT = re.compile(rf"{_MARK}(\d{{1,12}})(?!\d)", re.ASCII)

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
STATES_OF_RUNNING = frozenset(
    {"COMPLETED", "FAILED", "OUT_OF_MEMORY", "SUSPENDED", "TIMEOUT", RESIZED}
)
"""States that prove a run. Slurm resizes and suspends running jobs alone."""

# Ended by a person: work is lost only after a known checkpoint.
CANCELLED_STATES = frozenset({"CANCELLED"})


@dataclass(frozen=True, slots=True)
class Attempt:
    """A row of sacct. Times are seconds since the epoch, None while there is none.

    An attempt whose job was resized has several rows.
    """

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
    lost_later: bool = False  # it was resized, and a later row of it lost all of its work
    other_nodes: tuple[str, ...] = ()  # those that can't be instances, such as a rack's
    rack_node_count: int = 0  # nodes that have a rack's rate, and are not in the lists
    eligible: int | None = None  # a job that is held, or depends on another, is not eligible
    qos: str = ""
    project: str = ""  # `sbatch --wckey`, in small letters

    @property
    def het_job(self) -> str:
        """Return the id of its het job; empty if it has none."""
        first_id, sign, _ = self.job.partition("+")
        return first_id if sign else ""

    @property
    def begun(self) -> int:
        """Return when it was submitted or started, whichever is earlier."""
        submitted, started = self.submitted, self.started
        if submitted is None or started is None:
            return (started if submitted is None else submitted) or 0
        return min(submitted, started)

    @property
    def queued_from(self) -> int:
        """Return the second from which nodes alone kept it from running.

        That is its submission, where sacct's text has no other.
        """
        eligible, started = self.eligible or 0, self.started or 0
        return max(self.submitted or 0, eligible if eligible <= started else 0)

    @property
    def requeue_requested(self) -> bool:
        """Return whether the job saved its work, then asked for a requeue."""
        return REQUEUE_EXIT in self.exit_codes

    @property
    def certainly_ran(self) -> bool:
        """Return whether it certainly ran, for a second or longer.

        Any other attempt may have ended because it got no instances.
        """
        ran = self.state in STATES_OF_RUNNING or self.requeue_requested
        return ran and self.ended != self.started

    def checkpoint_marks(self) -> list[str]:
        """Return the digits of all marks in its comments."""
        return _CHECKPOINT.findall(self.comments)

    def without_words(self) -> Attempt:
        """Return it without the words of its user.

        Of its comments the marks stay: they tell what of its work was lost.
        """
        marks = " ".join(f"{_MARK}{mark}" for mark in self.checkpoint_marks())
        return replace(self, name="", comments=marks)

    def checkpoint(self) -> int | None:
        """Return the second of its last committed checkpoint, if known.

        The job leaves a mark. A mark of an earlier attempt, or one that a user made up,
        lies outside the attempt and is ignored.
        """
        if self.started is None:
            return None
        marks = [int(mark) for mark in self.checkpoint_marks()]
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
        if self.state in FAILED_STATES or self.lost_later:
            checkpoint = self.checkpoint()
            return self.started if checkpoint is None else checkpoint
        return self.checkpoint() if self.state in CANCELLED_STATES else None


def own_key(attempt: Attempt) -> int:
    """Return a key that no database gives.

    It is for an attempt whose DBIndex another one has, and the same in every report.
    DBIndexes have 64 bits.
    """
    identity = f"{attempt.key}|{attempt.job_id}|{attempt.submitted}"
    return (1 << 64) + int(hashlib.sha256(identity.encode()).hexdigest()[:15], 16)


def jobs_of(attempts: Iterable[Attempt]) -> list[list[Attempt]]:
    """Return the attempts of each job, in their order.

    Ids of jobs begin anew when slurmctld has lost its state. Two jobs with one id are
    told apart by their user, or by a count of restarts that does not rise without a
    resize.
    """
    by_id: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_id[attempt.job_id].append(attempt)
    jobs: list[list[Attempt]] = []
    for same_id in by_id.values():
        same_id.sort(key=lambda attempt: (attempt.submitted or 0, attempt.key))
        for position, attempt in enumerate(same_id):
            earlier = same_id[position - 1] if position else None
            if earlier is not None and _is_same_job(earlier, attempt):
                jobs[-1].append(attempt)
            else:
                jobs.append([attempt])
    return jobs


def attempt_numbers(attempts: Iterable[Attempt]) -> dict[int, int]:
    """Return each attempt's number within its job, by DBIndex.

    They are 0, 1, 2 and so on: Slurm's count of restarts, which no report's time changes.
    A sacct without it gives the attempts in their order, those of the report alone. Rows
    that a resize has divided have one number.
    """
    numbers: dict[int, int] = {}
    for job in jobs_of(attempts):
        position = 0
        for attempt in job:
            numbers[attempt.key] = position if attempt.restarts is None else attempt.restarts
            position += attempt.state != RESIZED
    return numbers


def with_resizes(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the attempts; resized rows know whether their work was lost.

    A checkpoint is the whole attempt's, and its mark is in the comment of any row.
    """
    attempts = list(attempts)
    resized_ids = {attempt.job_id for attempt in attempts if attempt.state == RESIZED}
    changed: dict[int, Attempt] = {}
    for job in jobs_of(item for item in attempts if item.job_id in resized_ids):
        for earlier, row in zip(job[-2::-1], job[:0:-1], strict=True):
            later = changed.get(row.key, row)
            if earlier.state == RESIZED:
                lost = later.started is not None and later.lost_from() == later.started
                comments = f"{earlier.comments}\n{later.comments}"
                changed[earlier.key] = replace(earlier, lost_later=lost, comments=comments)
    return [changed.get(attempt.key, attempt) for attempt in attempts]


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


def _is_same_job(earlier: Attempt, later: Attempt) -> bool:
    if earlier.user != later.user:
        return False
    if earlier.state == RESIZED:
        return earlier.ended == later.submitted
    if earlier.restarts is None or later.restarts is None:
        return True
    return later.restarts > earlier.restarts
