"""Check whether an attempt that is not its job's first may begin.

    python -m toolkit.training start-check

is run by the batch script before the workers. Most attempts are judged as they end, by their own
script (end_of_attempt). An attempt whose first node died, or whose script was killed, is judged
here, before the next one costs anything.

Its job's dollars and three attempts without progress are a limit, whether Slurm, the head or a
person brought the job back. It prints 93 when the job is held, 85 when a later attempt has taken
over the run, and 0 when training goes on. The reason goes to standard error.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from toolkit.training.attempt.attempt import Attempt, current
from toolkit.training.requeue import previous_attempts
from toolkit.training.requeue.end_of_attempt import (
    JobOutcome,
    hold_job,
    record_without_workers,
    unless_superseded,
)
from toolkit.training.requeue.failure_rules import VERSION
from toolkit.training.requeue.retry_budget import exceeded_budget, exceeded_limit, parse_dollars
from toolkit.training.run_folder import attempts, steps
from toolkit.training.run_folder.attempts import AttemptRecord, AttemptsFile, Cause
from toolkit.training.run_folder.checkpoint_names import last_step
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.slurm.job import SlurmJob

_RULE = f"held-at-beginning@{VERSION}"


class StartCheck:
    """The check before the workers of one attempt start."""

    def __init__(
        self,
        attempt: Attempt,
        job: SlurmJob,
        environment: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._attempt, self._job, self._environment = attempt, job, environment
        self._clock = clock
        self._run_folder = RunFolder(attempt.run_dir)
        self._attempts_file = AttemptsFile(self._run_folder.attempts, attempt.fence.write_fenced)

    def check(self) -> JobOutcome:
        """Judge the unjudged attempts, and record that this one begins.

        Holds the job if the attempt must not begin.
        """
        return unless_superseded(self._attempt, self._check)

    def _check(self) -> JobOutcome:
        lost_record = previous_attempts.close_lost(
            self._attempts_file, steps.read(self._run_folder.steps), self._attempt
        )
        log_lines = (lost_record.lost_message,) if lost_record else ()
        previous_attempts.classify_previous(
            self._attempts_file, self._attempt, self._job, self._environment
        )
        previous_attempts.reclassify_by_nodes(self._attempts_file, self._attempt, self._job)
        earlier_records = self._attempts_file.attempts()
        facts = self._job.facts()
        record = record_without_workers(self._attempt, len(earlier_records), facts, self._clock())
        # From here on, an attempt that ends before its workers start is in the attempts file.
        self._attempts_file.append(record)
        last_record = next(
            (entry for entry in reversed(earlier_records) if entry.job_id == record.job_id), None
        )
        reason = self._hold_reason(earlier_records, last_record)
        if not reason:
            return JobOutcome(0, log_lines)
        step = self._start_step(last_record)
        held_record = record.with_end(
            at=self._clock(), cause=attempts.HELD, step_end=step, detail=reason
        )
        held_record = replace(held_record, rule=_RULE)
        self._attempts_file.replace_by_number(held_record)
        outcome = hold_job(self._job, facts, reason, log_lines)
        self._attempts_file.replace_by_number(replace(held_record, held=True))
        return outcome

    def _hold_reason(
        self, earlier_records: Sequence[AttemptRecord], last_record: AttemptRecord | None
    ) -> str:
        """Return why a person has to decide, or "".

        "" lets the attempt begin. Only budgets that end in a hold count. Slurm does not requeue a
        job that failed, so a person wanted it to run.
        """
        if last_record and (last_record.held or last_record.cause == Cause.FINISHED):
            return ""  # a person released the job; a finished one costs no more
        job_id = self._attempt.job_id
        step = self._start_step(last_record) if self._run_folder.counts_steps else None
        cap = parse_dollars(self._environment.get("TOOLKIT_MAX_USD"))
        if reason := exceeded_budget(earlier_records, job_id=job_id, now=self._clock()):
            return reason
        reason = exceeded_limit(earlier_records, job_id=job_id, step=step, cap_usd=cap)
        if not reason or last_record is None:
            return reason
        if last_record.cause == attempts.LOST:
            return f"{reason}: {last_record.lost_message}"
        return f"{reason}: the last ended by {last_record.cause}"

    def _start_step(self, last_record: AttemptRecord | None) -> int:
        """Return the step where the attempt would begin."""
        saved_step = last_step(self._run_folder.checkpoints)
        return (last_record and last_record.step_start) or 0 if saved_step is None else saved_step


def main(_arguments: Sequence[str] = ()) -> int:
    """Run the command: print the exit code and return 0.

    Any other end means that the check could not be made.
    """
    # Holding a job sends it SIGTERM; scontrol inherits this.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    attempt = current()
    StartCheck(attempt, SlurmJob.of_attempt(attempt), os.environ).check().conclude(attempt)
    return 0
