"""Tell jobs about their nodes, one job at a time, with some calls each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from slurmplugins.errors import SlurmRefused, SlurmUnreachable
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmplugins.model.launch import Failure
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.system.logger import Log


class JobNotifier:
    """Comments on jobs and holds them.

    It stops at the first call that slurmctld does not answer, since hundreds may be left.
    """

    def __init__(self, slurm: Slurm, log: Log) -> None:
        self._slurm = slurm
        self._log = log

    def notify_failures(self, failures: Sequence[Failure]) -> frozenset[int]:
        """Comment why the jobs' nodes were given back; hold hopeless jobs.

        A job is held if it would only fail again. Returns the jobs that Slurm holds now.
        """
        held_jobs: set[int] = set()
        self.notify_each(
            {
                item.job: partial(self._notify_failure, item.job, item, held_jobs)
                for item in failures
                if item.job is not None
            }
        )
        return frozenset(held_jobs)

    def notify_each(self, notices: Mapping[int, Callable[[], None]]) -> None:
        """Run one call per job; stop when slurmctld is unreachable.

        The calls may raise SlurmUnreachable, which is logged with the jobs that were not notified.
        """
        remaining_jobs = list(notices)
        try:
            for job, notice in notices.items():
                notice()
                remaining_jobs.remove(job)
        except SlurmUnreachable as error:
            self._log.warning(
                LogEvent.JOBS_NOT_NOTIFIED, jobs=remaining_jobs, message=error.message
            )

    def comment(self, job: int, text: str) -> None:
        """Set the job's comment; only log a refusal. Raises SlurmUnreachable."""
        try:
            self._slurm.comment(job, text)
        except SlurmRefused as error:
            self._log.warning(LogEvent.JOB_COMMENT_FAILED, job=job, message=error.message)

    def _notify_failure(self, job: int, failure: Failure, held_jobs: set[int]) -> None:
        """Hold the job if asked, and comment on it.

        Its nodes must be down by now: only then is the job back in the queue, where it can be held.
        Raises SlurmUnreachable.
        """
        text = f"{failure.reason} {failure.message}"
        if failure.hold:
            try:
                self._slurm.hold(job)
                held_jobs.add(job)
                text = f"{failure.reason} held, release it after fixing this: {failure.message}"
            except SlurmRefused as error:  # a job that is no batch job ended with its nodes
                self._log.warning(LogEvent.JOB_HOLD_FAILED, job=job, message=error.message)
        self.comment(job, text)
