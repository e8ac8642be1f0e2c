"""Close attempts that ended before their batch script could judge them, and find their causes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from toolkit.training.attempt import job_log, stop_request, verdict
from toolkit.training.attempt.attempt import Attempt
from toolkit.training.attempt.verdict import Verdict
from toolkit.training.io.durable_files import there
from toolkit.training.requeue.failure_cause import Evidence, tail
from toolkit.training.requeue.failure_rules import PEER_LOST, classify
from toolkit.training.run_folder import attempts, gpu_usage
from toolkit.training.run_folder.attempts import AttemptRecord, Cause, Ledger
from toolkit.training.run_folder.steps import History
from toolkit.training.slurm.job import Accounted, SlurmJob

_SKEW = 5.0
"""Seconds by which the clocks of a cluster's instances may differ. Attempts are further apart."""

_KNOWN = 150.0
"""Seconds after which Slurm knows of an instance's end: slurmplugins.reconciler.requeue.BEFORE."""


def close(books: Ledger, history: History, attempt: Attempt) -> AttemptRecord | None:
    """Close an attempt without a verdict, now that `attempt` begins.

    In the ledger it ends with its last sign of life. `tell` asks accounting, which knows better.
    Returns its record, or None when there is none to close.
    """
    every = books.attempts()
    if not every or every[-1].cause != attempts.RUNNING or every[-1].awaits(attempt.key):
        return None
    seen = [*(step.at for step in history.steps), *(mark.at for mark in history.resumptions)]
    theirs = _of(every[-1], attempt)
    left = (*theirs.stop_files, theirs.verdict_file, *gpu_usage.files(theirs.run_dir, theirs.key))
    seen += [path.stat().st_mtime for path in left if there(path)]
    return books.close_lost(last_seen=max(seen, default=0.0), step_end=len(history.steps))


def tell(books: Ledger, attempt: Attempt, job: SlurmJob, environment: Mapping[str, str]) -> None:
    """Find causes for the unjudged attempts before `attempt`.

    The times in accounting count too: instances cost money until Slurm gave them up.

    Sometimes accounting does not answer or does not yet report the end, or the attempt's files
    can't be read. Such an attempt gets no rule, and is judged again by the next call.
    """
    untold = [
        record
        for record in books.attempts()
        if not record.rule
        and record.cause not in (attempts.RUNNING, Cause.FINISHED)
        and record.key != attempt.key
    ]
    text = job_log.end(environment) if untold else ""
    accounted = job.accounted() if untold else ()
    for record in untold:
        row = _row(record, accounted or ()) if record.job_id == attempt.job_id else None
        try:
            found = classify(_left_by(record, attempt, text, row.state if row else ""))
        except OSError:
            continue
        known = record.until(row.end) if row and row.end else record
        if found.cause is not Cause.ERROR:
            known = replace(known, cause=str(found.cause))
            if accounted is not None and (row is None or row.end):
                rule = f"{found.rule}@{found.version}"
                known = replace(known, rule=rule, detail=record.detail or found.seen)
        if known != record:
            books.amend(known)


def tell_again(books: Ledger, attempt: Attempt, job: SlurmJob) -> None:
    """Judge again the attempts that seem to have lost an instance.

    They are judged by their nodes. When such an attempt ends, Slurm may not know of the loss yet.
    """
    unsure = [
        record
        for record in books.attempts()
        if record.rule.partition("@")[0] in PEER_LOST
        and (record.job_id, record.held) == (attempt.job_id, False)
    ]
    if not unsure:
        return
    nodes = sorted({node for record in unsure for node in record.nodes})
    events = job.node_events(nodes, min(record.started_at for record in unsure))
    for record in unsure:
        until = (record.ended_at or record.started_at) + _KNOWN
        ours = [one for one in events if one.node in record.nodes]
        lines = [one.said for one in ours if record.started_at <= one.at <= until]
        found = classify(Evidence(nodes="\n".join(lines)))
        if found.cause is not Cause.ERROR:
            rule = f"{found.rule}@{found.version}"
            books.amend(replace(record, cause=str(found.cause), rule=rule, detail=found.seen))


def asked(attempt: Attempt) -> str:
    """Return the causes in the attempt's stop requests.

    Raises OSError when one can't be read.
    """
    stops = [stop_request.read(path, attempt.started_at) for path in attempt.stop_files]
    return " ".join(str(found.get("cause") or "") for found in stops if found)


def words(word: Verdict | None) -> str:
    """Return a verdict as the text that rules search."""
    return f"{word.verdict} {word.cause} {word.detail}" if word else ""


def _left_by(record: AttemptRecord, attempt: Attempt, log: str, state: str) -> Evidence:
    theirs = _of(record, attempt)
    word = verdict.read(theirs.verdict_file)
    own = tail(job_log.of(log, record.job_id, record.restart_count))
    return Evidence(state=state, stop=asked(theirs), verdict=words(word), log=own)


def _row(record: AttemptRecord, accounted: Sequence[Accounted]) -> Accounted | None:
    """Return accounting's row of an attempt, found by its time.

    The times come from two clocks: the node's and Slurm's.
    """
    row = min(accounted, key=lambda row: row.off(record.started_at), default=None)
    return row if row and row.off(record.started_at) <= _SKEW else None


def _of(record: AttemptRecord, attempt: Attempt) -> Attempt:
    """Return the attempt of `record`, in the run of `attempt`.

    It gives the names of the attempt's files.
    """
    job, restart, began = record.job_id, record.restart_count, record.started_at
    return replace(attempt, job_id=job, restart_count=restart, started_at=began)
