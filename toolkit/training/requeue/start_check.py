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
from toolkit.training.requeue.end_of_attempt import Outcome, as_owner, held, unattended
from toolkit.training.requeue.failure_rules import VERSION
from toolkit.training.requeue.retry_budget import dollars, exhausted, overdrawn
from toolkit.training.run_folder import attempts, steps
from toolkit.training.run_folder.attempts import AttemptRecord, Cause, Ledger
from toolkit.training.run_folder.checkpoint_names import last_step
from toolkit.training.run_folder.run_folder import RunDir
from toolkit.training.slurm.job import SlurmJob

_RULE = f"held-at-beginning@{VERSION}"


class Beginning:
    """The beginning of one attempt."""

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
        self._run_dir = RunDir(attempt.run_dir)
        self._ledger = Ledger(self._run_dir.attempts, attempt.owner.put)

    def look(self) -> Outcome:
        """Judge the unjudged attempts, and note that this one begins.

        Holds the job if the attempt must not begin.
        """
        return as_owner(self._attempt, self._look)

    def _look(self) -> Outcome:
        lost = previous_attempts.close(self._ledger, steps.read(self._run_dir.steps), self._attempt)
        said = (lost.without_a_word,) if lost else ()
        previous_attempts.tell(self._ledger, self._attempt, self._job, self._environment)
        previous_attempts.tell_again(self._ledger, self._attempt, self._job)
        before = self._ledger.attempts()
        facts = self._job.facts()
        record = unattended(self._attempt, len(before), facts, self._clock())
        # From here on, an attempt that dies before its workers come is in the ledger.
        self._ledger.begin(record)
        last = next((one for one in reversed(before) if one.job_id == record.job_id), None)
        reason = self._reason(before, last)
        if not reason:
            return Outcome(0, said)
        step = self._step(last)
        over = record.ended(at=self._clock(), cause=attempts.HELD, step_end=step, detail=reason)
        over = replace(over, rule=_RULE)
        self._ledger.amend(over)
        outcome = held(self._job, facts, reason, said)
        self._ledger.amend(replace(over, held=True))
        return outcome

    def _reason(self, before: Sequence[AttemptRecord], last: AttemptRecord | None) -> str:
        """Return why a person has to decide, or "".

        "" lets the attempt begin. Only budgets that end in a hold count. Slurm does not requeue a
        job that failed, so a person wanted it to run.
        """
        if last and (last.held or last.cause == Cause.FINISHED):
            return ""  # a person released the job and knew why; a finished one costs no more
        job_id = self._attempt.job_id
        step = self._step(last) if self._run_dir.counts_steps else None
        cap = dollars(self._environment.get("TOOLKIT_MAX_USD"))
        if reason := overdrawn(before, job_id=job_id, now=self._clock()):
            return reason
        reason = exhausted(before, job_id=job_id, step=step, cap_usd=cap)
        if not reason or last is None:
            return reason
        lost = last.cause == attempts.LOST
        return f"{reason}: {last.without_a_word if lost else f'the last ended by {last.cause}'}"

    def _step(self, last: AttemptRecord | None) -> int:
        """Return the step where the attempt would begin."""
        saved = last_step(self._run_dir.checkpoints)
        return (last and last.step_start) or 0 if saved is None else saved


def main(_arguments: Sequence[str] = ()) -> int:
    """Run the command: print the exit code and return 0.

    Any other end means that the check could not be made.
    """
    # Holding a job sends it SIGTERM; scontrol inherits this.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    attempt = current()
    Beginning(attempt, SlurmJob.of(attempt), os.environ).look().conclude(attempt)
    return 0
