"""Explains a job's state. Pure: facts in, answer out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import BadName
from slurmplugins.model import hostlist
from slurmplugins.model.node import JobId, contains_task
from slurmplugins.system.log_events import LogEvent
from toolkit.explain.answer import Answer, format_decision, format_duration, format_time
from toolkit.explain.launch_results import last_loss, last_refusal, launch_results
from toolkit.explain.reasons import MEANINGS, meaning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from slurmplugins.head.report import AttemptReport, BreakerReport, HeadReport, JobReport

EXIT_REQUEUE: Final = 85
EXIT_DO_NOT_REQUEUE: Final = 93

TASKS_SHOWN: Final = 20

# Slurm's reason for a pending job → its meaning, and what to do.
REASONS: Final = {
    "AssocGrpBillingMinutes": (
        "too little is left of its account's budget for the job's whole time limit"
    ),
    "AssocGrpBillingRunMinutes": "its account's budget has reached a step that holds jobs",
    "AssocGrpGRES": "the job's account already runs as many GPUs as its limit allows",
    "AssocGrpSubmitJobsLimit": "its account takes no jobs now",
    "BadConstraints": "no node of the partition fits the request",
    "BeginTime": "the job has a begin time; after a requeue it is some seconds ahead",
    "Cleaning": "Slurm is still ending the job's last attempt",
    "Dependency": "the job waits for other jobs",
    "DependencyNeverSatisfied": "the job's dependency can no longer be met: cancel the job",
    "JobArrayTaskLimit": "the array already runs as many tasks as its own limit allows",
    "JobHeldAdmin": "an admin or the toolkit holds the job",
    "JobHeldUser": "its owner, or its own batch script, holds the job",
    "NodeDown": "a node that the job needs is down",
    "None": "the scheduler has not looked at the job yet",
    "PartitionDown": "the job's partition is down",
    "PartitionNodeLimit": "the job requests more nodes than the partition has",
    "PartitionTimeLimit": "the job requests more time than the partition allows",
    "Priority": "jobs of higher priority start first",
    "QOSMaxGRESPerUser": "its owner already runs as many GPUs as the QOS allows",
    "ReqNodeNotAvail": "a node that the job needs is drained, down or reserved",
    "Resources": "every node that the job could use is in use",
}
BUDGET_REASONS: Final = frozenset(
    {"AssocGrpBillingMinutes", "AssocGrpBillingRunMinutes", "AssocGrpSubmitJobsLimit"}
)
"""Reasons of a job that waits for its account's budget."""
REASONS_BETWEEN_ATTEMPTS: Final = frozenset(
    {"BeginTime", "Cleaning", "NodeDown", "None", "ReqNodeNotAvail", "Resources"}
)
"""Reasons that Slurm gives a job between two attempts. They do not tell why it waits."""

END_STATES: Final = {
    "BOOT_FAIL": "its nodes did not register in time",
    "CANCELLED": "a user or an admin cancelled it",
    "COMPLETED": "its batch script exited with 0",
    "DEADLINE": "its deadline passed",
    "FAILED": "its batch script failed",
    "NODE_FAIL": "it lost a node",
    "OUT_OF_MEMORY": "it used more memory than it had requested",
    "PREEMPTED": "a job of higher priority took its nodes",
    "REQUEUED": "it was requeued",
    "RUNAWAY": "slurmdbd has it as running, and slurmctld does not know it",
    "TIMEOUT": "it reached its time limit",
}

OPEN_STATES: Final = frozenset({"RUNNING", "SUSPENDED"})
"""States of an attempt that has not ended."""
RUNAWAY: Final = "RUNAWAY"
NEXT_OF_RUNAWAY: Final = (
    "an admin ends it in slurmdbd: `sacctmgr show runawayjobs` lists such jobs and asks first. If"
    " it ended just now, slurmdbd has yet to learn of it: ask again in a minute"
)


def explain(report: HeadReport, number: int, task: int | None = None) -> Answer:
    """Return the answer for one job, array or task.

    There is an answer also when Slurm knows none of that number. For an array with
    several records, it lists the tasks.
    """
    matching_jobs = tuple(_matching_jobs(report.jobs, number, task))
    if len(matching_jobs) > 1:
        return _explain_array(report, number, matching_jobs)
    job = matching_jobs[0] if matching_jobs else None
    name = str(JobId(number, task)) if job is None else job.label
    if job is None or not {"PENDING", "RUNNING", "SUSPENDED"} & set(job.states):
        verdict, evidence, next_event = _explain_past(report, name, job)
    elif "PENDING" in job.states:
        verdict, evidence, next_event = _explain_pending(report, job)
    else:
        verdict, evidence, next_event = _explain_running(report, job)
    return Answer(
        subject=f"job {name}" + (f" ({job.name}, {job.user})" if job is not None else ""),
        verdict=verdict,
        because=evidence,
        tried=launch_results(report.decisions),
        next=next_event,
        decisions=tuple(format_decision(item) for item in report.decisions),
        unread=report.unread,
    )


def _matching_jobs(jobs: Iterable[JobReport], number: int, task: int | None) -> Iterator[JobReport]:
    """Yield the records that the question is about."""
    if task is None:
        yield from (job for job in jobs if number in (job.id, job.array))
        return
    tasks = [job for job in jobs if job.array == number]
    task_records = [job for job in tasks if job.task == task]
    waiting_records = (replace(job, task=task) for job in tasks if contains_task(job.waiting, task))
    yield from task_records or waiting_records


def _explain_array(report: HeadReport, number: int, jobs: Sequence[JobReport]) -> Answer:
    sorted_jobs = sorted(jobs, key=lambda job: (bool(job.waiting), job.task or 0))
    states = Counter("+".join(job.states).lower() for job in jobs if not job.waiting)
    counts = [f"{count} {state}" for state, count in states.items()]
    counts += [f"waiting: {job.waiting}" for job in jobs if job.waiting]
    evidence = [_array_line(job) for job in sorted_jobs[:TASKS_SHOWN]]
    evidence += [f"burst of {item.label}: {item.text}" for item in report.bursts[:TASKS_SHOWN]]
    if len(sorted_jobs) > TASKS_SHOWN:
        evidence.append(f"and {len(sorted_jobs) - TASKS_SHOWN} more: `toolkit jobs` lists them")
    return Answer(
        subject=f"job array {number} ({jobs[0].name}, {jobs[0].user})",
        verdict=", ".join(counts),
        because=tuple(evidence),
        next=f"`toolkit why {number}_TASK` explains one task",
        decisions=tuple(format_decision(item) for item in report.decisions),
        unread=report.unread,
    )


def _array_line(job: JobReport) -> str:
    reason_text = f": {REASONS.get(job.reason, job.reason)}" if "PENDING" in job.states else ""
    return f"{job.label}: {'+'.join(job.states).lower()}{reason_text}"


def _explain_pending(report: HeadReport, job: JobReport) -> tuple[str, tuple[str, ...], str]:
    waiting = f" for {format_duration(report.at - job.submitted_at)}" if job.submitted_at else ""
    reason_text = REASONS.get(job.reason, f"Slurm says {job.reason}")
    if _may_use_spot_alone(report, job):
        reason_text = "its account's budget allows partitions that buy spot alone"
    if job.id in report.budget_holds:
        reason_text = "the budget of its project holds it"
    evidence = [f"{job.reason}: {reason_text}"]
    cause = ""
    refusal, loss = last_refusal(report.decisions), last_loss(report.decisions)
    if refusal is not None:
        reason, code = str(refusal.get("slug")), refusal.get("code")
        cause = MEANINGS.get(reason, reason)
        code_text = f" ({code})" if code else ""
        evidence.append(f"{_time_of(refusal)}: the job got no nodes: {reason}{code_text}")
        message = str(refusal.get("message", ""))
        if message not in job.admin_comment:
            evidence.append(f"message: {message}"[:500])
    elif loss is not None:
        reason = str(loss.get("why"))
        cause = f"the job lost {loss.get('node')}: {meaning(reason) or reason}"
        evidence.append(f"{_time_of(loss)}: {loss.get('node')} was set DOWN: {reason}")
    if job.restarts:
        evidence.append(f"the job was requeued {_count_text(job.restarts)}")
    evidence += _burst_lines(report, job)
    evidence += _comment_lines(job)
    is_held = _is_held(job)
    is_our_cause = job.reason in REASONS_BETWEEN_ATTEMPTS or (
        is_held and refusal is not None and refusal.get("hold") in (True, "True")
    )
    answer = cause if cause and is_our_cause else reason_text
    verdict = f"{'held' if is_held else 'pending'}{waiting}: {answer}"
    return verdict, tuple(evidence), _next_launch(report, job)


def _may_use_spot_alone(report: HeadReport, job: JobReport) -> bool:
    """Return whether a budget keeps the job from all of its partitions.

    Slurm then gives it the reason None.
    """
    partitions = job.partition.split(",")
    return all(job.account in report.denied.get(name, ()) for name in partitions)


def _burst_lines(report: HeadReport, job: JobReport) -> list[str]:
    """Return the burst governor's decision, if it made one."""
    return [f"burst: {item.text}" for item in report.bursts if item.job == job.id]


def _time_of(decision: Mapping[str, Any]) -> str:
    return format_time(float(decision.get("at", 0)))


def _is_held(job: JobReport) -> bool:
    """Return whether the job is held.

    Slurm states another reason while it still ends the job's last attempt.
    """
    return job.held or job.reason.startswith("JobHeld")


def _count_text(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _comment_lines(job: JobReport) -> list[str]:
    """Return the head's and the job's comments: a requeue's or hold's cause."""
    return [f"comment: {text}" for text in (job.admin_comment, job.comment) if text]


def _next_launch(report: HeadReport, job: JobReport) -> str:
    """Return the time of the job's next launch, if known."""
    if job.id in report.budget_holds:
        return (
            "when its project's budget has room: `toolkit budget status`; a shorter time limit may"
            " fit"
        )
    if _is_held(job):
        # The array's number would release every task.
        name = job.id if job.task is None else job.label
        return f"nothing happens until somebody runs `scontrol release {name}`"
    if job.reason in BUDGET_REASONS or _may_use_spot_alone(report, job):
        return (
            "when its account's budget has room: `toolkit budget status`; a shorter time limit may"
            " fit"
        )
    known_times = []
    request_note = ""
    if job.eligible_at is not None and job.eligible_at > report.at:
        known_times.append((job.eligible_at, "Slurm may start the job"))
    refusal = last_refusal(report.decisions)
    if refusal is not None and refusal.get("slug") == "pool-protected":
        known_times += [
            (item.retry_at, f"pool {item.pool} lets one job through as a probe")
            for item in _refused_pools(report, refusal)
            if item.protected_since is not None
        ]
    elif refusal is not None and refusal.get("slug") == "not-ended":
        request_note = ", if EC2 terminates instances again"
    elif refusal is not None:
        start = max((at for at, _ in known_times), default=report.at)
        request_note = _first_request(report, start) + _smaller_request_advice(job)
    future_times = [wait for wait in known_times if wait[0] > report.at]
    if future_times:
        at, event = max(future_times)
        return f"{format_time(at)}, in {format_duration(at - report.at)}: {event}{request_note}"
    return f"within seconds, when the scheduler reaches the job{request_note}"


def _smaller_request_advice(job: JobReport) -> str:
    """Return advice on a smaller request, if fewer nodes would do.

    Slurm takes as many nodes of a range as are free, and can't know how many EC2 has.
    """
    if not 0 < job.node_count < job.most_nodes:
        return ""
    command = f"scontrol update jobid={job.label} numnodes={job.node_count}"
    return f"; Slurm requests all {job.most_nodes} nodes. To request {job.node_count}: `{command}`"


def _refused_pools(report: HeadReport, refusal: Mapping[str, Any]) -> Sequence[BreakerReport]:
    """Return the circuit breakers of the pools whose nodes were refused.

    They are all pools' if the refusal names no node.
    """
    try:
        nodes = hostlist.expand(str(refusal.get("nodes") or ""))
    except BadName:
        return report.standings
    pools = {hostlist.pool_of(node) for node in nodes}
    return [item for item in report.standings if item.pool in pools or not pools]


def _first_request(report: HeadReport, at: float) -> str:
    """Return the offering that resume requests first if all are unavailable.

    resume then does not wait until they are available again.
    """
    tried = {item.offering for item in launch_results(report.decisions)}
    unavailable = [item for item in report.setbacks if item.key in tried and item.until > at]
    if not tried or len(unavailable) < len(tried):
        return ""
    first = min(unavailable, key=lambda item: item.until)
    return f"; {first.key} ({first.code}) is requested first"


def _explain_running(report: HeadReport, job: JobReport) -> tuple[str, tuple[str, ...], str]:
    up_nodes: list[str] = []
    booting_nodes: list[str] = []
    nodes = {item.name: item for item in report.nodes}
    for name in job.nodes:
        flags = nodes[name].flags if name in nodes else ()
        (booting_nodes if {"POWERING_UP", "POWER_UP"} & set(flags) else up_nodes).append(name)
    evidence = tuple(_node_line(report, name) for name in job.nodes)
    if booting_nodes:
        verdict = f"starting: {len(up_nodes)} of {len(job.nodes)} nodes are up"
        return verdict, evidence, "the job starts when the last of its nodes has registered"
    run_time = f" for {format_duration(report.at - job.started_at)}" if job.started_at else ""
    return f"running{run_time} on {len(job.nodes)} nodes", evidence, ""


def _node_line(report: HeadReport, name: str) -> str:
    instance = next((m for m in report.machines if m.node == name and _is_live(m.state)), None)
    if instance is None:
        return f"{name}: no instance yet"
    trouble = "".join(f"; {item}" for item in instance.trouble)
    age = format_duration(report.at - instance.launched_at)
    return (
        f"{name}: {instance.id}, {instance.type} {instance.lifecycle} in {instance.zone},"
        f" {instance.state}, {age} old{trouble}"
    )


def _explain_past(
    report: HeadReport, name: str, job: JobReport | None
) -> tuple[str, tuple[str, ...], str]:
    if job is None and not report.attempts:
        if report.unread:
            return "unknown: Slurm could not be read", (), ""
        return f"Slurm knows no job {name}", (), "`toolkit jobs` lists all jobs"
    end_state = _end_state(report, job)
    lines = tuple(_attempt_lines(report.attempts))
    notices = [
        _decision_line(item)
        for item in report.decisions
        if item.get("event") == LogEvent.INTERRUPTION_ANNOUNCED
    ]
    comments = _comment_lines(job) if job is not None else []
    verdict = f"{end_state.lower()}: {END_STATES.get(end_state, 'see its attempts')}"
    return verdict, (*lines, *notices, *comments), NEXT_OF_RUNAWAY if end_state == RUNAWAY else ""


def _end_state(report: HeadReport, job: JobReport | None) -> str:
    """Return how the job ended, by its last attempt.

    slurmdbd may have no end of it. slurmctld then knows more, also if it knows no such job.
    """
    state = report.attempts[-1].state if report.attempts else ""
    is_open = state in OPEN_STATES and report.attempts[-1].ended_at is None
    if is_open and job is None and not report.unread:
        return RUNAWAY
    if job is not None and (is_open or not state):
        return job.states[0] if job.states else "?"
    return state.split()[0] if state else "?"


def _decision_line(item: object) -> str:
    return format_decision(item) if isinstance(item, dict) else str(item)


def _attempt_lines(attempts: tuple[AttemptReport, ...]) -> Iterator[str]:
    for number, item in enumerate(attempts, start=1):
        start_text = format_time(item.started_at) if item.started_at else "never started"
        run_time = ""
        if item.started_at and item.ended_at:
            run_time = f", ran {format_duration(item.ended_at - item.started_at)}"
        node_text = f" on {item.nodes}" if item.nodes else ""
        end_state = item.state.split()[0] if item.state else "?"
        end = f"{end_state}{_exit_text(item.exit_code)}"
        yield f"attempt {number}: {start_text}{node_text}{run_time}: {end}"


def _exit_text(text: str) -> str:
    """Return an exit code and signal from `code:signal`.

    The two codes with a meaning here are explained.
    """
    code, _, signal = text.partition(":")
    if signal not in ("", "0"):
        return f", signal {signal}"
    if code in ("", "0"):
        return ""
    meaning = {
        str(EXIT_REQUEUE): " (saved; Slurm requeues the job)",
        str(EXIT_DO_NOT_REQUEUE): " (do not requeue)",
    }
    return f", exit code {code}{meaning.get(code, '')}"


def _is_live(state: str) -> bool:
    return state in {"pending", "running"}
