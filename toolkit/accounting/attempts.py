"""One attempt of a job: a requeue makes a new one, and every one of them used machines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkit.accounting.tres import Tres

REQUEUE_ME = 85
"""The exit code of a job that saved its work and asks to be brought back."""

# What a training run writes in its job's comment when a checkpoint is committed.
_CHECKPOINT = re.compile(r"toolkit:checkpoint=(\d{1,12})(?!\d)")

_UNCLEAN = frozenset(
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
# Ended by a person: lost only where a checkpoint says from when on.
_STOPPED = frozenset({"CANCELLED"})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One row of sacct. Times are seconds since the epoch, None where there is none (yet)."""

    key: int
    job_id: str
    job: str
    name: str
    user: str
    account: str
    partition: str
    qos: str
    state: str
    exit_codes: tuple[int, ...]
    restarts: int | None
    submitted: int | None
    started: int | None
    ended: int | None
    nodes: tuple[str, ...]
    given: Tres
    remarks: str = ""

    @property
    def asked_to_come_back(self) -> bool:
        """Whether it stopped by itself after it had saved its work."""
        return REQUEUE_ME in self.exit_codes

    def checkpoint(self) -> int | None:
        """The second of its last committed checkpoint, if the job left a mark and it fits.

        A mark of an earlier attempt, or one that a user made up, lies outside the attempt.
        """
        if self.started is None:
            return None
        marks = [int(mark) for mark in _CHECKPOINT.findall(self.remarks)]
        end = self.ended
        fitting = [at for at in marks if at >= self.started and (end is None or at <= end)]
        return max(fitting, default=None)

    def lost_from(self) -> int | None:
        """From which second on this attempt's work came to nothing; None if it all counted.

        Work is lost from the last checkpoint to the end of an attempt that did not end cleanly, and
        from its start if no checkpoint is known. A job that asked to come back lost nothing.
        """
        if self.ended is None or self.started is None or self.asked_to_come_back:
            return None
        checkpoint = self.checkpoint()
        if self.state in _UNCLEAN:
            return self.started if checkpoint is None else checkpoint
        return checkpoint if self.state in _STOPPED else None
