"""The end of an attempt: why it ended, what that is worth, and the job's exit code.

    python -m toolkit.training.ending --code CODE

is what the batch script runs last, with the step's exit code. It writes the cause into the attempt
ledger, appends to the job's comment, requeues the job with a wait, or holds it with a reason, and
prints the exit code for the batch script; what it has to say goes to standard error.

    python -m toolkit.training.ending --explain LOG

tells the cause that a log alone would give.
"""

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path

from toolkit.training import ledger, slurm_job, tiers, verdict
from toolkit.training.attempt import Attempt, current, instance_facts
from toolkit.training.budget import Decision, decide
from toolkit.training.cause import LOG_BYTES, Cause, Diagnosis, Evidence, tail
from toolkit.training.cause_rules import classify
from toolkit.training.files import read_json
from toolkit.training.job_name import task_name
from toolkit.training.ledger import AttemptRecord, Ledger
from toolkit.training.run import RunDir
from toolkit.training.slurm_job import JobFacts, SlurmJob
from toolkit.training.verdict import DO_NOT_REQUEUE, RESUME_ME, Verdict

BEGINS = "[toolkit] job {job}, restart {restart},"
"""What preflight.sh says first: the log has earlier attempts before it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The exit code for the batch script, and the lines that explain it."""

    code: int
    said: tuple[str, ...]


class Ending:
    """One attempt's end, put together and acted upon."""

    def __init__(
        self,
        attempt: Attempt,
        job: SlurmJob,
        environment: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._attempt, self._job, self._environment = attempt, job, environment
        self._clock, self._chance = clock, chance
        self._ledger = Ledger(RunDir(attempt.run_dir).attempts)

    def settle(self, code: int) -> Outcome:
        """Find the cause, decide, act, and say what came of it.

        One whose run another attempt has taken over decides nothing: the job may be its, too. Where
        slurmctld took this end for the other's, as it may on a node of the same name, 85 is mended.
        """
        if self._attempt.owner.lost():
            return Outcome(RESUME_ME, ("superseded: another attempt has taken over this run",))
        self._settle_earlier()
        word = verdict.read(self._attempt.verdict_file)
        facts = self._job.facts()
        found = classify(self._evidence(code, word, facts))
        record = self._record(found, word, facts)
        if word is not None and word.verdict == "hold":
            decision = Decision("hold", 0.0, f"{word.cause}: {word.detail}")
        else:
            decision = decide(
                found,
                self._ledger.attempts(),
                job_id=self._attempt.job_id,
                step=record.step_end or 0,
                cap_usd=_dollars(self._environment.get("TOOLKIT_MAX_USD")),
                now=self._clock(),
                chance=self._chance(),
            )
        if decision.action == "hold":
            self._ledger.amend(replace(record, held=True))
        said = f"{found.cause} by rule {found.rule} of edition {found.version}: {found.seen}"
        outcome = self._act(decision, facts, word, code, said)
        return replace(outcome, said=(*outcome.said, *self._no_cap()))

    def _no_cap(self) -> list[str]:
        """A word for who asked for a cap that there is not."""
        asked = self._environment.get("TOOLKIT_MAX_USD")
        if not asked:
            return []
        if _dollars(asked) is None:
            return [f"TOOLKIT_MAX_USD={asked!r} is no number of dollars: there is no cap"]
        if ledger.total_cost(self._ledger.attempts()) is None:
            return ["TOOLKIT_MAX_USD: no price of this run's machines is known, so there is no cap"]
        return []

    def _settle_earlier(self) -> None:
        """Attempts whose script was ended before it came here are told by what they left."""
        untold = [
            record
            for record in self._ledger.attempts()
            if not record.rule
            and record.cause not in (ledger.RUNNING, Cause.FINISHED)
            and record.key != self._attempt.key
        ]
        log = self._environment.get("TOOLKIT_LOG") or _own_log() if untold else ""
        text = _end_of(Path(log)) if log else ""
        states = self._job.ends() if untold else {}
        for record in untold:
            found = classify(self._left_by(record, text, states.get(record.key, "")))
            if found.cause is not Cause.ERROR:
                rule = f"{found.rule}@{found.version}"
                self._ledger.amend(replace(record, cause=str(found.cause), rule=rule))

    def _left_by(self, record: AttemptRecord, log: str, state: str) -> Evidence:
        place = self._attempt.run_dir
        stops = (self._attempt.stop_dir / f"{record.key}.json", place / f"stop.{record.key}.json")
        word = verdict.read(place / f"verdict.{record.key}.json")
        own = tail(_of_attempt(log, record))
        return Evidence(state=state, stop=_asked(stops), verdict=_words(word), log=own)

    def _evidence(self, code: int, word: Verdict | None, facts: JobFacts) -> Evidence:
        detail = f"\n{word.detail}\n" if word and word.verdict == "failed" else ""
        log = self._environment.get("TOOLKIT_LOG") or _own_log() or facts.log
        return Evidence(
            code=code,
            state=facts.state.replace("RUNNING", ""),
            stop=_asked(self._attempt.stop_files),
            nodes=facts.nodes,
            verdict=_words(word),
            log=tail(_this_attempt(_end_of(Path(log)), self._attempt) + detail) if log else detail,
        )

    def _record(self, found: Diagnosis, word: Verdict | None, facts: JobFacts) -> AttemptRecord:
        """The attempt's line in the ledger, begun here where no worker came so far."""
        every = self._ledger.attempts()
        ours = [one for one in every if one.key == self._attempt.key]
        now = self._clock()
        record = ours[-1] if ours else _unbegun(self._attempt, len(every), facts, now)
        if record.ended_at is None:
            reached = word.step if word else self._reached(record)
            record = record.ended(at=now, cause=found.cause, step_end=reached)
        detail = record.detail or found.seen
        rule = f"{found.rule}@{found.version}"
        cause = word.cause if word and word.verdict == "hold" else str(found.cause)
        record = replace(record, cause=cause, rule=rule, detail=detail)
        self._attempt.run_dir.mkdir(parents=True, exist_ok=True)
        if ours:
            self._ledger.amend(record)
        else:
            self._ledger.begin(record)
        return record

    def _reached(self, record: AttemptRecord) -> int:
        """Where the next attempt begins after one that ended without a word."""
        saved = tiers.last_step(RunDir(self._attempt.run_dir).checkpoints)
        return record.step_start or 0 if saved is None else saved

    def _act(
        self, decision: Decision, facts: JobFacts, word: Verdict | None, code: int, said: str
    ) -> Outcome:
        lines = [said]
        if decision.action == "done":
            return Outcome(0, (*lines,))
        if decision.action == "fail":
            lines.append(f"not brought back: {decision.reason}")
            self._job.note(facts, f"toolkit: {decision.reason}")
            return Outcome(_failed(code, word), tuple(lines))
        if decision.action == "hold":
            lines.append(f"held: {decision.reason}")
            release = f"scontrol release {self._job.name}"
            self._job.note(facts, f"toolkit: held: {decision.reason}; to go on: {release}")
            held = self._job.requeue_held()
            lines.append(f"to go on: {release}" if held else "Slurm did not hold it: it ends here")
            return Outcome(DO_NOT_REQUEUE, tuple(lines))
        self._job.note(facts, f"toolkit: {decision.reason}")
        if decision.wait and self._job.requeue_at(self._clock() + decision.wait):
            lines.append(f"brought back in {decision.wait:.0f} s")
        return Outcome(RESUME_ME, tuple(lines))


def _failed(code: int, word: Verdict | None) -> int:
    """The script's own code, kept clear of those that Slurm acts on."""
    own = word.exit_code if word and word.verdict == "failed" else code
    return own if own not in (0, RESUME_ME, DO_NOT_REQUEUE) else 1


def _unbegun(attempt: Attempt, number: int, facts: JobFacts, now: float) -> AttemptRecord:
    instance = instance_facts()
    names = tuple(line.split()[0] for line in facts.nodes.splitlines()) or (attempt.node,)
    return AttemptRecord(
        attempt=number,
        job_id=attempt.job_id,
        restart_count=attempt.restart_count,
        started_at=attempt.started_at or now,
        ended_at=None,
        seconds=None,
        cause=ledger.RUNNING,
        step_start=None,
        step_end=None,
        world_size=0,
        nodes=names,
        # The machines of one job are of one pool: this one's price stands for each.
        instances=(instance,) * len(names) if instance else (),
        cost_usd=None,
    )


def _own_log() -> str:
    """The file that the batch script's errors go to, and its steps' with them."""
    try:
        path = Path("/proc/self/fd/2").readlink()
    except OSError:
        return ""
    return str(path) if path.is_file() else ""


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - LOG_BYTES))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def _asked(stop_files: Sequence[Path]) -> str:
    stops = [read_json(path, limit=65536) for path in stop_files]
    return " ".join(str(found.get("cause") or "") for found in stops if found)


def _words(word: Verdict | None) -> str:
    return f"{word.verdict} {word.cause} {word.detail}" if word else ""


def _of_attempt(text: str, record: AttemptRecord) -> str:
    """What an earlier attempt wrote, if the log has its beginning; "" otherwise."""
    begins = BEGINS.format(job=record.job_id, restart=record.restart_count)
    own = text.rpartition(begins)[2] if begins in text else ""
    return own.partition("\n[toolkit] job ")[0]


def _this_attempt(text: str, attempt: Attempt) -> str:
    begins = BEGINS.format(job=attempt.job_id, restart=attempt.restart_count)
    return text[max(0, text.rfind(begins)) :]


def _dollars(text: str | None) -> Decimal | None:
    """What a cap says, a dollar sign before it or not. None: no cap, or nothing that is one."""
    try:
        found = Decimal((text or "").strip().removeprefix("$"))
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _explain(log: Path) -> int:
    found = classify(Evidence(code=1, log=tail(log.read_text(errors="replace"))))
    sys.stdout.write(f"{found.cause} {found.rule}@{found.version}: {found.seen}\n")
    return 0 if found.cause is Cause.FINISHED else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Prints the exit code and returns 0; anything else means it could not tell."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.training.ending")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--code", type=int, help="the step's exit code")
    what.add_argument("--explain", type=Path, metavar="LOG", help="the cause a log alone gives")
    options = parser.parse_args(arguments)
    if options.explain:
        return _explain(options.explain)
    # Requeueing a job sends it SIGTERM; scontrol inherits this.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    attempt = current()
    job = SlurmJob(attempt.job_id, slurm_job.run, task_name(attempt.job_id))
    outcome = Ending(attempt, job, os.environ).settle(options.code)
    for line in outcome.said:
        sys.stderr.write(f"[toolkit] {line}\n")
    sys.stdout.write(f"{outcome.code}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
