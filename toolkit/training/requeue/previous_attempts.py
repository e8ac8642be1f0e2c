"""Close attempts that ended before their batch script could judge them, and find their causes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from toolkit.training.attempt import job_log, stop_request, verdict
from toolkit.training.attempt.attempt import Attempt
from toolkit.training.attempt.verdict import Verdict
from toolkit.training.io.durable_files import path_exists
from toolkit.training.requeue.failure_cause import Evidence, tail
from toolkit.training.requeue.failure_rules import PEER_LOST, classify
from toolkit.training.run_folder import attempts, gpu_usage
from toolkit.training.run_folder.attempts import AttemptRecord, AttemptsFile, Cause
from toolkit.training.run_folder.steps import History
from toolkit.training.slurm.job import AccountedAttempt, SlurmJob

_SKEW = 5.0
"""Seconds by which the clocks of a cluster's instances may differ. Attempts are further apart."""

_NODE_LOSS_REPORTED = 150.0
"""Seconds after which Slurm knows of an instance's end.

`SECONDS_BEFORE_LOSS` in `slurmplugins.reconciler.requeue` says the same.
"""


def close_lost(
    attempts_file: AttemptsFile, history: History, attempt: Attempt
) -> AttemptRecord | None:
    """Close an attempt without a verdict, now that `attempt` begins.

    In the attempts file it ends with its last sign of life. `classify_previous` reads the true end
    from accounting. Returns its record, or None when there is none to close.
    """
    records = attempts_file.attempts()
    last = records[-1] if records else None
    if last is None or last.cause != attempts.RUNNING or last.awaits_workers(attempt.key):
        return None
    times = [*(step.at for step in history.steps), *(mark.at for mark in history.resumptions)]
    lost = _attempt_of(last, attempt)
    files = (*lost.stop_files, lost.verdict_file, *gpu_usage.usage_files(lost.run_dir, lost.key))
    times += [path.stat().st_mtime for path in files if path_exists(path)]
    return attempts_file.close_lost(last_seen=max(times, default=0.0), step_end=len(history.steps))


def classify_previous(
    attempts_file: AttemptsFile, attempt: Attempt, job: SlurmJob, environment: Mapping[str, str]
) -> None:
    """Find causes for the unjudged attempts before `attempt`.

    The times in accounting count too: instances cost money until Slurm gave them up.

    Sometimes accounting does not answer or does not yet report the end, or the attempt's files
    can't be read. Such an attempt gets no rule, and is judged again by the next call.
    """
    unjudged_records = [
        record
        for record in attempts_file.attempts()
        if not record.rule
        and record.cause not in (attempts.RUNNING, Cause.FINISHED)
        and record.key != attempt.key
    ]
    log_text = job_log.tail_or_empty(environment) if unjudged_records else ""
    accounted = job.accounted_attempts() if unjudged_records else ()
    for record in unjudged_records:
        row = _accounting_row(record, accounted or ()) if record.job_id == attempt.job_id else None
        try:
            diagnosis = classify(_evidence_of(record, attempt, log_text, row.state if row else ""))
        except OSError:
            continue
        updated_record = record.with_later_end(row.end) if row and row.end else record
        if diagnosis.cause is not Cause.ERROR:
            updated_record = replace(updated_record, cause=str(diagnosis.cause))
            if accounted is not None and (row is None or row.end):
                detail = record.detail or diagnosis.matched_line
                updated_record = replace(
                    updated_record, rule=diagnosis.versioned_rule, detail=detail
                )
        if updated_record != record:
            attempts_file.replace_by_number(updated_record)


def reclassify_by_nodes(attempts_file: AttemptsFile, attempt: Attempt, job: SlurmJob) -> None:
    """Judge again the attempts that seem to have lost an instance.

    They are judged by their nodes. When such an attempt ends, Slurm may not know of the loss yet.
    """
    peer_lost_records = [
        record
        for record in attempts_file.attempts()
        if record.rule.partition("@")[0] in PEER_LOST
        and (record.job_id, record.held) == (attempt.job_id, False)
    ]
    if not peer_lost_records:
        return
    nodes = sorted({node for record in peer_lost_records for node in record.nodes})
    events = job.node_events(nodes, min(record.started_at for record in peer_lost_records))
    for record in peer_lost_records:
        latest = (record.ended_at or record.started_at) + _NODE_LOSS_REPORTED
        node_events = [event for event in events if event.node in record.nodes]
        lines = [event.line for event in node_events if record.started_at <= event.at <= latest]
        diagnosis = classify(Evidence(nodes="\n".join(lines)))
        if diagnosis.cause is not Cause.ERROR:
            cause, rule = str(diagnosis.cause), diagnosis.versioned_rule
            attempts_file.replace_by_number(
                replace(record, cause=cause, rule=rule, detail=diagnosis.matched_line)
            )


def stop_causes(attempt: Attempt) -> str:
    """Return the causes in the attempt's stop requests.

    Raises OSError when one can't be read.
    """
    requests = [stop_request.read(path, attempt.started_at) for path in attempt.stop_files]
    return " ".join(str(request.get("cause") or "") for request in requests if request)


def verdict_text(ranks_verdict: Verdict | None) -> str:
    """Return a verdict as the text that rules search."""
    if ranks_verdict is None:
        return ""
    return f"{ranks_verdict.verdict} {ranks_verdict.cause} {ranks_verdict.detail}"


def _evidence_of(record: AttemptRecord, attempt: Attempt, log: str, state: str) -> Evidence:
    earlier = _attempt_of(record, attempt)
    return Evidence(
        state=state,
        stop=stop_causes(earlier),
        verdict=verdict_text(verdict.read(earlier.verdict_file)),
        log=tail(job_log.attempt_text(log, record.job_id, record.restart_count)),
    )


def _accounting_row(
    record: AttemptRecord, accounted: Sequence[AccountedAttempt]
) -> AccountedAttempt | None:
    """Return accounting's row of an attempt, found by its time.

    The times come from two clocks: the node's and Slurm's.
    """
    row = min(accounted, key=lambda row: row.seconds_outside(record.started_at), default=None)
    return row if row and row.seconds_outside(record.started_at) <= _SKEW else None


def _attempt_of(record: AttemptRecord, attempt: Attempt) -> Attempt:
    """Return the attempt of `record`, in the run of `attempt`.

    It gives the names of the attempt's files.
    """
    job, restart, started_at = record.job_id, record.restart_count, record.started_at
    return replace(attempt, job_id=job, restart_count=restart, started_at=started_at)
