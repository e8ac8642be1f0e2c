"""Attempts that ended before their batch script could say why: closed, told by what they left."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit.training import job_log, ledger, verdict
from toolkit.training.attempt import Attempt
from toolkit.training.cause import Cause, Diagnosis, Evidence, tail
from toolkit.training.cause_rules import classify
from toolkit.training.files import read_json
from toolkit.training.ledger import AttemptRecord, Ledger
from toolkit.training.slurm_job import SlurmJob
from toolkit.training.steplog import History
from toolkit.training.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Told:
    """What ended an attempt, as far as it left a trace. `state`: accounting's word for it."""

    found: Diagnosis
    state: str


def close(books: Ledger, history: History, key: str) -> AttemptRecord | None:
    """Close an attempt that ended without a word, now that attempt `key` begins."""
    every = books.attempts()
    if every and every[-1].awaits(key):
        return None
    seen = [*(step.at for step in history.steps), *(mark.at for mark in history.resumptions)]
    return books.close_lost(last_seen=max(seen, default=0.0), step_end=len(history.steps))


def tell(
    books: Ledger, attempt: Attempt, job: SlurmJob, environment: Mapping[str, str]
) -> Mapping[str, Told]:
    """Find causes for the attempts before `attempt` that nobody has judged; by their keys."""
    untold = [
        record
        for record in books.attempts()
        if not record.rule
        and record.cause not in (ledger.RUNNING, Cause.FINISHED)
        and record.key != attempt.key
    ]
    text = job_log.end(environment) if untold else ""
    states = job.ends() if untold else {}
    told = {}
    for record in untold:
        state = states.get(record.key, "")
        found = classify(_left_by(record, attempt, text, state))
        told[record.key] = Told(found, state)
        if found.cause is not Cause.ERROR:
            rule = f"{found.rule}@{found.version}"
            books.amend(replace(record, cause=str(found.cause), rule=rule))
    return told


def asked(stop_files: Sequence[Path]) -> str:
    """The causes that these stop requests name."""
    stops = [read_json(path, limit=65536) for path in stop_files]
    return " ".join(str(found.get("cause") or "") for found in stops if found)


def words(word: Verdict | None) -> str:
    """A verdict as the rules read it."""
    return f"{word.verdict} {word.cause} {word.detail}" if word else ""


def _left_by(record: AttemptRecord, attempt: Attempt, log: str, state: str) -> Evidence:
    place = attempt.run_dir
    stops = (attempt.stop_dir / f"{record.key}.json", place / f"stop.{record.key}.json")
    word = verdict.read(place / f"verdict.{record.key}.json")
    own = tail(job_log.of(log, record.job_id, record.restart_count))
    return Evidence(state=state, stop=asked(stops), verdict=words(word), log=own)
