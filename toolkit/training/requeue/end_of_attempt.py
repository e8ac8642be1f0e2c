"""Judge the end of an attempt: find its cause, decide, and give the job's exit code.

    python -m toolkit.training end-of-attempt --code CODE

is the last command of the batch script, with the step's exit code. It writes the cause into the
attempt ledger and appends to the job's comment. It requeues the job with a wait, or holds it with a
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
from toolkit.training.attempt.fencing import Superseded
from toolkit.training.attempt.verdict import DO_NOT_REQUEUE, RESUME_ME, Verdict
from toolkit.training.io.cluster_info import instance_facts
from toolkit.training.requeue import previous_attempts
from toolkit.training.requeue.failure_cause import Diagnosis, Evidence, tail
from toolkit.training.requeue.failure_rules import PEER_LOST, classify
from toolkit.training.requeue.retry_budget import Decision, decide, dollars
from toolkit.training.run_folder import attempts, checkpoint_names
from toolkit.training.run_folder.attempts import AttemptRecord, Cause, Ledger
from toolkit.training.run_folder.run_folder import RunDir
from toolkit.training.slurm.job import JobFacts, SlurmJob
from toolkit.training.sweeps import trial_file
from toolkit.training.tracking import mlflow
from toolkit.training.tracking.tracker import Status

NODES_SECONDS = 10.0
"""Seconds after which EC2's list and reconcile's next pass have mostly reported a second lost
instance.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The exit code for the batch script, and the lines that explain it."""

    code: int
    said: tuple[str, ...]
    # For the tracking server and a sweep. None when the workers reported it, or the job may come
    # back.
    status: Status | None = None

    def conclude(self, attempt: Attempt) -> None:
        """Report the outcome to batch script, log and tracking server."""
        # The job's end depends on the exit code, so it goes first: the log's disk may be full.
        sys.stdout.write(f"{self.code}\n")
        sys.stdout.flush()
        with suppress(OSError):
            for line in self.said:
                sys.stderr.write(f"[toolkit] {line}\n")
        if self.status and not attempt.owner.may_be_lost():
            # Standard output is for the code alone: MLflow's client prints a run's address.
            with redirect_stdout(sys.stderr):
                mlflow.end_run(attempt, self.status, time.time())
                trial_file.tell_over(attempt)


class Ending:
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
        self._run_dir = RunDir(attempt.run_dir)
        self._ledger = Ledger(self._run_dir.attempts, attempt.owner.put)
        self._missed: list[str] = []

    def settle(self, code: int) -> Outcome:
        """Find the cause, decide, act, and return the outcome.

        Raises OSError when the evidence for the cause can't be read. Then nothing was done to the
        job, and the call may be repeated.
        """
        return as_owner(self._attempt, lambda: self._settle(code))

    def _settle(self, code: int) -> Outcome:
        self._keep(
            lambda: previous_attempts.tell(
                self._ledger, self._attempt, self._job, self._environment
            )
        )
        word = verdict.read(self._attempt.verdict_file)
        found, facts = self._diagnosed(code, word)
        every = self._ledger.attempts()
        record = self._record(found, word, facts, every)
        self._keep(lambda: self._put(record))
        known = tuple(({one.attempt: one for one in every} | {record.attempt: record}).values())
        if word is not None and word.verdict == "hold":
            decision = Decision("hold", 0.0, f"{word.cause}: {word.detail}")
        else:
            decision = decide(
                found,
                known,
                job_id=self._attempt.job_id,
                step=record.step_end if self._run_dir.counts_steps else None,
                cap_usd=dollars(self._environment.get("TOOLKIT_MAX_USD")),
                now=self._clock(),
                chance=self._chance(),
            )
        said = f"{found.cause} by rule {found.rule} of edition {found.version}: {found.seen}"
        failed: Status = "KILLED" if found.cause is Cause.CANCELLED else "FAILED"
        outcome = self._act(decision, facts, _failed(code, word), failed, said)
        if decision.action == "hold":
            self._keep(lambda: self._ledger.amend(replace(record, held=True)))
        return replace(outcome, said=(*outcome.said, *self._missed, *self._no_cap(known)))

    def _keep(self, write: Callable[[], None]) -> None:
        """Write to the ledger, without failing.

        A failed write must not keep the job from its end: a full disk is one that brings it back.
        The next attempt's start check finds out the missing parts.
        """
        try:
            try:
                write()
            except OSError:  # the error may be over by now
                write()
        except OSError as error:
            self._missed.append(f"not noted in the attempt ledger: {error}")

    def _no_cap(self, known: Sequence[AttemptRecord]) -> list[str]:
        """Return a warning if the cap that was asked for is missing."""
        asked = self._environment.get("TOOLKIT_MAX_USD")
        if not asked:
            return []
        if dollars(asked) is None:
            return [f"TOOLKIT_MAX_USD={asked!r} is no number of dollars: there is no cap"]
        if attempts.total_cost(known) is None:
            return ["TOOLKIT_MAX_USD: no price of this run's machines is known, so there is no cap"]
        return []

    def _diagnosed(self, code: int, word: Verdict | None) -> tuple[Diagnosis, JobFacts]:
        """Return the cause and Slurm's facts.

        After a lost peer Slurm is asked again, for it may know more a moment later.
        """
        facts = self._job.facts()
        found = classify(self._evidence(code, word, facts))
        if found.rule not in PEER_LOST or len(facts.nodes.splitlines()) <= 1:
            return found, facts
        self._pause(NODES_SECONDS)
        later = self._job.facts()
        if not later.nodes:
            return found, facts
        return classify(self._evidence(code, word, later)), later

    def _evidence(self, code: int, word: Verdict | None, facts: JobFacts) -> Evidence:
        state = facts.state.replace("RUNNING", "")
        if code == 0 and word is None and not self._run_dir.counts_steps:
            # Without a Run the script does not stop early on request: it is done.
            return Evidence(code=code, state=state)
        detail = f"\n{word.detail}\n" if word and word.verdict == "failed" else ""
        log = job_log.read(self._environment, facts.log)
        own = job_log.since(log, self._attempt.job_id, self._attempt.restart_count)
        if code == 0 and word is None:  # the script ended well: errors in its log were overcome
            own = ""
        return Evidence(
            code=code,
            state=state,
            stop=previous_attempts.asked(self._attempt),
            nodes=facts.nodes,
            verdict=previous_attempts.words(word),
            log=tail(own + detail),
        )

    def _record(
        self,
        found: Diagnosis,
        word: Verdict | None,
        facts: JobFacts,
        every: Sequence[AttemptRecord],
    ) -> AttemptRecord:
        """Return the attempt's ledger line, begun here if no worker came."""
        ours = [one for one in every if one.key == self._attempt.key]
        now = self._clock()
        record = ours[-1] if ours else unattended(self._attempt, len(every), facts, now)
        # A background save may be committed though its attempt ended before it knew.
        reached = max(self._reached(record), word.step if word else 0)
        if record.ended_at is None:
            record = record.ended(at=now, cause=found.cause, step_end=reached)
        detail = record.detail or found.seen
        rule = f"{found.rule}@{found.version}"
        cause = word.cause if word and word.verdict == "hold" else str(found.cause)
        return replace(record, cause=cause, rule=rule, detail=detail, step_end=reached)

    def _put(self, record: AttemptRecord) -> None:
        self._attempt.run_dir.mkdir(parents=True, exist_ok=True)
        if any(one.attempt == record.attempt for one in self._ledger.attempts()):
            self._ledger.amend(record)
        else:
            self._ledger.begin(record)

    def _reached(self, record: AttemptRecord) -> int:
        """Return the step where the next attempt begins, by the checkpoints."""
        saved = checkpoint_names.last_step(self._run_dir.checkpoints)
        return record.step_start or 0 if saved is None else saved

    def _act(
        self, decision: Decision, facts: JobFacts, code: int, failed: Status, said: str
    ) -> Outcome:
        """Act on the decision, and return the outcome.

        `code` and `failed` are for the job and its run, if this is their end.
        """
        lines = [said]
        if decision.action == "done":
            return Outcome(0, (*lines,))
        if decision.action == "fail":
            lines.append(f"not brought back: {decision.reason}")
            self._job.note(facts, f"toolkit: {decision.reason}")
            return Outcome(code, tuple(lines), failed)
        if decision.action == "hold":
            return held(self._job, facts, decision.reason, lines)
        self._job.note(facts, f"toolkit: {decision.reason}")
        if decision.wait and self._job.requeue_at(self._clock() + decision.wait):
            lines.append(f"brought back in {decision.wait:.0f} s")
        return Outcome(RESUME_ME, tuple(lines))


def as_owner(attempt: Attempt, judge: Callable[[], Outcome]) -> Outcome:
    """Return the outcome of `judge`, if the run is the attempt's.

    A superseded attempt decides nothing: the job may be the other attempt's too. On a node of the
    same name, slurmctld may take this end for the other attempt's. Exit code 85 does no lasting
    harm then: the job comes back.
    """
    try:
        attempt.owner.check()
        return judge()
    except Superseded:
        return Outcome(RESUME_ME, ("superseded: another attempt has taken over this run",))


def held(job: SlurmJob, facts: JobFacts, reason: str, said: Sequence[str] = ()) -> Outcome:
    """Hold the job. If Slurm does not, the job ends here.

    The ledger gets `held` after this call and not before: the mark gives new budgets. A process
    that is killed in between has then held nothing.
    """
    done, why = job.hold(facts, reason)
    return Outcome(DO_NOT_REQUEUE, (*said, *why), None if done else "FAILED")


def _failed(code: int, word: Verdict | None) -> int:
    """Return the script's own exit code.

    1 instead of 0 and of a code that Slurm acts on.
    """
    own = word.exit_code if word and word.verdict == "failed" else code
    return own if own not in (0, RESUME_ME, DO_NOT_REQUEUE) else 1


def unattended(attempt: Attempt, number: int, facts: JobFacts, now: float) -> AttemptRecord:
    """Return the record of an attempt without workers.

    It holds the facts that the batch script knows.
    """
    instance = instance_facts()
    nodes = tuple(line.split()[0] for line in facts.nodes.splitlines()) or (attempt.node,)
    # The instances of one job are from one pool: this one's price stands for each.
    instances = (instance,) * len(nodes) if instance else ()
    return AttemptRecord.begun(attempt, number, now, world_size=0, nodes=nodes, instances=instances)


def _explain(log: Path) -> int:
    found = classify(Evidence(code=1, log=tail(log.read_text(errors="replace"))))
    sys.stdout.write(f"{found.cause} {found.rule}@{found.version}: {found.seen}\n")
    return 0 if found.cause is Cause.FINISHED else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: print the exit code and return 0.

    Any other return value means that the cause could not be told.
    """
    parser = argparse.ArgumentParser(prog="python -m toolkit.training end-of-attempt")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--code", type=int, help="the step's exit code")
    what.add_argument("--explain", type=Path, metavar="LOG", help="the cause a log alone gives")
    options = parser.parse_args(arguments)
    if options.explain:
        return _explain(options.explain)
    # Requeueing a job sends it SIGTERM; scontrol inherits this.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    attempt = current()
    try:
        outcome = Ending(attempt, SlurmJob.of(attempt), os.environ).settle(options.code)
    except OSError as error:
        sys.stderr.write(f"[toolkit] can't tell why this attempt ended: {error}\n")
        return 1
    outcome.conclude(attempt)
    return 0
