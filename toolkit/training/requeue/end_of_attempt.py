"""Judge the end of an attempt: find its cause, decide, and give the job's exit code.

    python -m toolkit.training end-of-attempt --code CODE

is the last command of the batch script, with the step's exit code. It writes the cause into the
attempts file and appends to the job's comment. It requeues the job with a wait, or holds it with a
reason. It prints the exit code for the batch script; explanations go to standard error.

    python -m toolkit.training end-of-attempt --explain LOG

prints the cause that a log alone would give.
"""

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit.training.attempt import job_log, verdict
from toolkit.training.attempt.attempt import Attempt, current
from toolkit.training.attempt.verdict import DO_NOT_REQUEUE, RESUME_ME, Verdict
from toolkit.training.errors import Superseded
from toolkit.training.io.cluster_info import instance_facts
from toolkit.training.requeue import previous_attempts
from toolkit.training.requeue.failure_cause import Diagnosis, Evidence, tail
from toolkit.training.requeue.failure_rules import PEER_LOST, classify
from toolkit.training.requeue.retry_budget import Decision, decide, parse_dollars
from toolkit.training.run_folder import attempts, checkpoint_names
from toolkit.training.run_folder.attempts import AttemptRecord, AttemptsFile, Cause
from toolkit.training.run_folder.run_folder import RunFolder
from toolkit.training.slurm.job import JobFacts, SlurmJob
from toolkit.training.sweeps import trial_file
from toolkit.training.tracking import mlflow
from toolkit.training.tracking.tracker import Status, has_backlog

NODE_LOSS_SECONDS = 10.0
"""Seconds after which EC2's list and reconcile's next pass have mostly reported a second lost
instance.
"""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The exit code for the batch script, and the lines that explain it."""

    code: int
    log_lines: tuple[str, ...]
    # For the tracking server and a sweep. None when the workers reported it, or the job may come
    # back.
    status: Status | None = None

    def conclude(self, attempt: Attempt) -> None:
        """Report the outcome to batch script, log and tracking server."""
        # The job's end depends on the exit code, so it goes first: the log's disk may be full.
        sys.stdout.write(f"{self.code}\n")
        sys.stdout.flush()
        with suppress(OSError):
            for line in self.log_lines:
                sys.stderr.write(f"[toolkit] {line}\n")
        if self.status and not attempt.fence.may_be_superseded():
            # Standard output is for the code alone: MLflow's client prints a run's address.
            with redirect_stdout(sys.stderr):
                mlflow.end_mlflow_run(attempt, self.status, time.time())
                if self.status != "FINISHED":  # the workers ended a finished run's trial
                    trial_file.end_trial(attempt)


class EndOfAttempt:
    """The end of one attempt."""

    def __init__(
        self,
        attempt: Attempt,
        job: SlurmJob,
        environment: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._attempt, self._job, self._environment = attempt, job, environment
        self._clock, self._chance, self._pause = clock, chance, pause
        self._run_folder = RunFolder(attempt.run_dir)
        self._attempts_file = AttemptsFile(self._run_folder.attempts, attempt.fence.write_fenced)
        self._write_problems: list[str] = []

    def judge(self, code: int) -> JobOutcome:
        """Find the cause, decide, act, and return the outcome.

        Raises OSError when the evidence for the cause can't be read. Then nothing was done to the
        job, and the call may be repeated.
        """
        return unless_superseded(self._attempt, lambda: self._judge(code))

    def _judge(self, code: int) -> JobOutcome:
        self._try_to_write(
            lambda: previous_attempts.classify_previous(
                self._attempts_file, self._attempt, self._job, self._environment
            )
        )
        ranks_verdict = verdict.read(self._attempt.verdict_file)
        diagnosis, facts = self._diagnose(code, ranks_verdict)
        records = self._attempts_file.attempts()
        record = self._record(diagnosis, ranks_verdict, facts, records)
        self._try_to_write(lambda: self._write_record(record))
        decision = self._decide(diagnosis, ranks_verdict, records, record)
        failed_status: Status = "KILLED" if diagnosis.cause is Cause.CANCELLED else "FAILED"
        end_code = _failure_code(code, ranks_verdict)
        outcome = self._act(
            decision, facts, end_code, failed_status, _explanation(record, diagnosis)
        )
        if decision.action == "hold":
            self._try_to_write(
                lambda: self._attempts_file.replace_by_number(replace(record, held=True))
            )
        warnings = (*self._write_problems, *self._cap_warnings([*records, record]))
        return replace(outcome, log_lines=(*outcome.log_lines, *warnings))

    def _decide(
        self,
        diagnosis: Diagnosis,
        ranks_verdict: Verdict | None,
        records: Sequence[AttemptRecord],
        record: AttemptRecord,
    ) -> Decision:
        if ranks_verdict is not None and ranks_verdict.verdict == "hold":
            return Decision("hold", 0.0, f"{ranks_verdict.cause}: {ranks_verdict.detail}")
        by_number = {entry.attempt: entry for entry in records} | {record.attempt: record}
        return decide(
            diagnosis,
            tuple(by_number.values()),
            job_id=self._attempt.job_id,
            step=record.step_end if self._run_folder.counts_steps else None,
            cap_usd=parse_dollars(self._environment.get("TOOLKIT_MAX_USD")),
            now=self._clock(),
            chance=self._chance(),
        )

    def _try_to_write(self, write: Callable[[], None]) -> None:
        """Write to the attempts file, without failing.

        A failed write must not keep the job from its end: a full disk is a cause that requeues it.
        The next attempt's start check finds out the missing parts.
        """
        try:
            try:
                write()
            except OSError:  # the error may be over by now
                write()
        except OSError as error:
            self._write_problems.append(f"attempts.jsonl can't be written: {error}")

    def _cap_warnings(self, records: Sequence[AttemptRecord]) -> list[str]:
        """Return a warning if the cap that was asked for is missing."""
        cap_text = self._environment.get("TOOLKIT_MAX_USD")
        if not cap_text:
            return []
        if parse_dollars(cap_text) is None:
            return [f"TOOLKIT_MAX_USD={cap_text!r} has no effect: it is not a number of dollars"]
        if attempts.total_cost(records) is None:
            return ["TOOLKIT_MAX_USD has no effect: no price of this run's instances is known"]
        return []

    def _diagnose(self, code: int, ranks_verdict: Verdict | None) -> tuple[Diagnosis, JobFacts]:
        """Return the cause and Slurm's facts.

        After a lost peer it reads them again, since Slurm may know more a moment later.
        """
        facts = self._job.facts()
        diagnosis = classify(self._evidence(code, ranks_verdict, facts))
        if diagnosis.rule not in PEER_LOST or len(facts.nodes.splitlines()) <= 1:
            return diagnosis, facts
        self._pause(NODE_LOSS_SECONDS)
        later_facts = self._job.facts()
        if not later_facts.nodes:
            return diagnosis, facts
        return classify(self._evidence(code, ranks_verdict, later_facts)), later_facts

    def _evidence(self, code: int, ranks_verdict: Verdict | None, facts: JobFacts) -> Evidence:
        state = facts.state.replace("RUNNING", "")
        if code == 0 and ranks_verdict is None and not self._run_folder.counts_steps:
            # Without a Run the script does not stop early on request: it is done.
            return Evidence(code=code, state=state)
        detail = (
            f"\n{ranks_verdict.detail}\n"
            if ranks_verdict and ranks_verdict.verdict == "failed"
            else ""
        )
        log = job_log.read_tail(self._environment, facts.log)
        attempt_log = job_log.text_since_attempt(
            log, self._attempt.job_id, self._attempt.restart_count
        )
        if (
            code == 0 and ranks_verdict is None
        ):  # the script ended well: errors in its log were overcome
            attempt_log = ""
        return Evidence(
            code=code,
            state=state,
            stop=previous_attempts.stop_causes(self._attempt),
            nodes=facts.nodes,
            verdict=previous_attempts.verdict_text(ranks_verdict),
            log=tail(attempt_log + detail),
        )

    def _record(
        self,
        diagnosis: Diagnosis,
        ranks_verdict: Verdict | None,
        facts: JobFacts,
        records: Sequence[AttemptRecord],
    ) -> AttemptRecord:
        """Return the attempt's line, made here if no rank started."""
        now = self._clock()
        record = next((entry for entry in records[::-1] if entry.key == self._attempt.key), None)
        record = record or record_without_workers(self._attempt, len(records), facts, now)
        # A background save may be committed though its attempt ended before it knew.
        step_end = max(self._next_step(record), ranks_verdict.step if ranks_verdict else 0)
        if record.ended_at is None:
            record = record.with_end(at=now, cause=diagnosis.cause, step_end=step_end)
        detail = record.detail or diagnosis.matched_line
        cause = str(diagnosis.cause)
        if ranks_verdict and ranks_verdict.verdict == "hold":
            cause = ranks_verdict.cause
        rule = diagnosis.versioned_rule
        return replace(record, cause=cause, rule=rule, detail=detail, step_end=step_end)

    def _write_record(self, record: AttemptRecord) -> None:
        self._attempt.run_dir.mkdir(parents=True, exist_ok=True)
        if any(entry.attempt == record.attempt for entry in self._attempts_file.attempts()):
            self._attempts_file.replace_by_number(record)
        else:
            self._attempts_file.append(record)

    def _next_step(self, record: AttemptRecord) -> int:
        """Return the step where the next attempt begins, by the checkpoints."""
        saved_step = checkpoint_names.last_step(self._run_folder.checkpoints)
        return record.step_start or 0 if saved_step is None else saved_step

    def _act(
        self,
        decision: Decision,
        facts: JobFacts,
        code: int,
        failed_status: Status,
        explanation: str,
    ) -> JobOutcome:
        """Act on the decision, and return the outcome.

        `code` and `failed_status` are for the job and its run, if this is their end.
        """
        log_lines = [explanation]
        if decision.action == "done":
            late = has_backlog(self._run_folder.path)  # MLflow did not answer as the run ended
            return JobOutcome(0, (*log_lines,), "FINISHED" if late else None)
        if decision.action == "fail":
            log_lines.append(f"job {self._job.name} is not requeued: {decision.reason}")
            self._job.append_comment(facts, f"toolkit: {decision.reason}")
            return JobOutcome(code, tuple(log_lines), failed_status)
        if decision.action == "hold":
            return hold_job(self._job, facts, decision.reason, log_lines)
        self._job.append_comment(facts, f"toolkit: {decision.reason}")
        if decision.wait and self._job.requeue_at(self._clock() + decision.wait):
            log_lines.append(
                f"job {self._job.name} is requeued, and starts in {decision.wait:.0f} s"
            )
        return JobOutcome(RESUME_ME, tuple(log_lines))


def _explanation(record: AttemptRecord, diagnosis: Diagnosis) -> str:
    """Return the log's first line about the end of an attempt."""
    if diagnosis.cause is Cause.FINISHED:
        return f"{record.name} finished"
    evidence = f"{diagnosis.matched_line} (rule {diagnosis.versioned_rule})"
    return f"{record.name} ended by {diagnosis.cause}: {evidence}"


def unless_superseded(attempt: Attempt, judge: Callable[[], JobOutcome]) -> JobOutcome:
    """Return the outcome of `judge`, if the run is the attempt's.

    A superseded attempt decides nothing: the job may be the other attempt's too. On a node of the
    same name, slurmctld may take this end for the other attempt's. Exit code 85 does no lasting
    harm then: the job is requeued.
    """
    try:
        attempt.fence.check()
        return judge()
    except Superseded:
        return JobOutcome(RESUME_ME, ("superseded: a later attempt has taken over this run",))


def hold_job(
    job: SlurmJob, facts: JobFacts, reason: str, log_lines: Sequence[str] = ()
) -> JobOutcome:
    """Hold the job. If Slurm does not, the job ends here.

    The attempts file gets `held` after this call and not before: the mark gives new budgets. A
    process that is killed in between has then held nothing.
    """
    is_held, hold_lines = job.hold(facts, reason)
    return JobOutcome(DO_NOT_REQUEUE, (*log_lines, *hold_lines), None if is_held else "FAILED")


def _failure_code(code: int, ranks_verdict: Verdict | None) -> int:
    """Return the script's own exit code.

    1 instead of 0 and of a code that Slurm acts on.
    """
    own_code = (
        ranks_verdict.exit_code if ranks_verdict and ranks_verdict.verdict == "failed" else code
    )
    return own_code if own_code not in (0, RESUME_ME, DO_NOT_REQUEUE) else 1


def record_without_workers(
    attempt: Attempt, number: int, facts: JobFacts, now: float
) -> AttemptRecord:
    """Return the record of an attempt without workers.

    It holds the facts that the batch script knows.
    """
    instance = instance_facts()
    nodes = tuple(line.split()[0] for line in facts.nodes.splitlines()) or (attempt.node,)
    # The instances of one job are from one pool: this one's price stands for each.
    instances = (instance,) * len(nodes) if instance else ()
    return AttemptRecord.at_start(
        attempt, number, now, world_size=0, nodes=nodes, instances=instances
    )


def _explain(log: Path) -> int:
    diagnosis = classify(Evidence(code=1, log=tail(log.read_text(errors="replace"))))
    sys.stdout.write(f"{diagnosis.cause} {diagnosis.versioned_rule}: {diagnosis.matched_line}\n")
    return 0 if diagnosis.cause is Cause.FINISHED else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: print the exit code and return 0.

    Any other return value means that the cause could not be found.
    """
    parser = argparse.ArgumentParser(prog="python -m toolkit.training end-of-attempt")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--code", type=int, help="the step's exit code")
    mode.add_argument("--explain", type=Path, metavar="LOG", help="the cause a log alone gives")
    options = parser.parse_args(arguments)
    if options.explain:
        return _explain(options.explain)
    # Requeueing a job sends it SIGTERM; scontrol inherits this.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    attempt = current()
    try:
        outcome = EndOfAttempt(attempt, SlurmJob.of_attempt(attempt), os.environ).judge(
            options.code
        )
    except OSError as error:
        sys.stderr.write(f"[toolkit] the cause of this attempt's end can't be found: {error}\n")
        return 1
    outcome.conclude(attempt)
    return 0
