"""Ends of a report's jobs, and causes of lost work.

Only attempts that were charged count, since a closed day knows no other.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from toolkit.accounting.attempts import CANCELLED_STATES, RESIZED
from toolkit.finance.charges_by_day import run_span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.report import Report

_COMPLETED = frozenset({"COMPLETED"})
_FAILED = frozenset(
    {"BOOT_FAIL", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}
)
_OWN_FAILURES = frozenset({"DEADLINE", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"})
SAME_END = 300
"""Seconds within which slurmctld notices that a node's instance has ended."""


class Cause(StrEnum):
    """The cause of a cost that did no useful work."""

    INTERRUPTION = "spot interruption"
    FAULT = "node or launch failure"
    JOB = "error, memory or time limit of the job"
    STOPPED = "cancelled, preempted or requeued by a person"
    BOOT = "boot and wait for nodes"
    IDLE = "idle"
    UNALLOCATED = "unallocated part of busy nodes"
    COMMITMENT = "unused commitment"


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """The names of jobs that ended in the report's time, by their end."""

    completed: frozenset[str]
    failed: frozenset[str]

    @property
    def count(self) -> int:
        """Return the number of both; a cancelled job is in neither."""
        return len(self.completed) + len(self.failed)


@dataclass(frozen=True)  # without slots: what is looked up is kept
class Outcomes:
    """The attempts of a report that were charged, in their order."""

    report: Report

    @cached_property
    def attempts(self) -> Mapping[int, Attempt]:
        """Return the attempts, by DBIndex."""
        charged = {charge.attempt for cost in self.report.costs for charge in cost.charges}
        return {key: item for key, item in self.report.attempts.items() if key in charged}

    @cached_property
    def jobs(self) -> Mapping[str, Sequence[Attempt]]:
        """Return the attempts of each job, by its name in the report."""
        jobs: dict[str, list[Attempt]] = defaultdict(list)
        for item in sorted(self.attempts.values(), key=lambda one: (one.submitted or 0, one.key)):
            jobs[self.report.job_labels[item.key]].append(item)
        return jobs

    @cached_property
    def ended_jobs(self) -> EndedJobs:
        """Return the jobs that came to an end."""
        window = self.report.window
        last_attempts = {
            name: attempts[-1]
            for name, attempts in self.jobs.items()
            if attempts[-1].ended is not None
            and window.since <= attempts[-1].ended <= window.until
            and not attempts[-1].requeue_requested
        }
        return EndedJobs(
            _names(last_attempts, _COMPLETED),
            _names(last_attempts, _FAILED),
        )

    @cached_property
    def waits(self) -> tuple[int, ...]:
        """Return the seconds from submission to start, the shortest first.

        Each is of an attempt that started in the report's time. A resize is no start.
        """
        window = self.report.window
        resizes = {
            (item.job_id, item.ended) for item in self.attempts.values() if item.state == RESIZED
        }
        return tuple(
            sorted(
                max(item.started - item.submitted, 0)
                for item in self.attempts.values()
                if item.started is not None
                and item.submitted is not None
                and window.since <= item.started < window.until
                and (item.job_id, item.submitted) not in resizes
            )
        )

    @cached_property
    def causes(self) -> Mapping[int, Cause]:
        """Return why attempts ended early, by DBIndex; one that completed did not."""
        ends: dict[int, list[int]] = defaultdict(list)
        for cost in self.report.costs:
            instance = self.report.instances[cost.instance_id]
            if instance.taken and instance.ended is not None:
                for key in {charge.attempt for charge in cost.charges} - {None}:
                    ends[key or 0].append(instance.ended)
        return {
            key: _cause(item, ends.get(key, ()))
            for key, item in self.attempts.items()
            if item.state not in _COMPLETED or item.requeue_requested
        }

    @cached_property
    def after_interruption(self) -> frozenset[int]:
        """Return the attempts that an interruption made necessary."""
        return frozenset(
            later.key
            for attempts in self.jobs.values()
            for earlier, later in pairwise(attempts)
            if self.causes.get(earlier.key) is Cause.INTERRUPTION
        )

    @cached_property
    def gpu_seconds(self) -> int:
        """Return the seconds for which jobs held GPUs, times their number."""
        return sum(
            item.tres.gpus * max(end - start, 0)
            for item in self.attempts.values()
            for start, end in [run_span(item, self.report)]
        )


def _names(last_attempts: Mapping[str, Attempt], states: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name, item in last_attempts.items() if item.state in states)


def _cause(attempt: Attempt, interruptions: Sequence[int]) -> Cause:
    """Return the cause of an attempt's end.

    An interruption is one only if the instance ended as the attempt did, or before it.
    """
    if attempt.state == "PREEMPTED" or attempt.state in CANCELLED_STATES:
        return Cause.STOPPED
    if attempt.ended is not None and any(end <= attempt.ended + SAME_END for end in interruptions):
        return Cause.INTERRUPTION
    if attempt.state in _OWN_FAILURES and not attempt.requeue_requested:
        return Cause.JOB
    return Cause.STOPPED if attempt.state == "REQUEUED" else Cause.FAULT
