"""Explains a job's state. Pure: facts in, answer out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import BadName
from slurmplugins.model import hostlist
from slurmplugins.model.job_id import JobName, holds
from toolkit.explain.answer import Answer, moment, span, told
from toolkit.explain.reasons import MEANINGS, meaning
from toolkit.explain.tries import last_loss, last_refusal, tries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from slurmplugins.head.report import AttemptReport, HeadReport, JobReport, StandingReport

BRING_BACK: Final = 85
DO_NOT: Final = 93

TASKS_SHOWN: Final = 20

# Slurm's reason for a pending job → its meaning here, and what to do.
REASONS: Final = {
    "AssocGrpBillingMinutes": "its account has used up its budget",
    "AssocGrpGRES": "its account runs as many GPUs as it may",
    "BadConstraints": "no node of the partition is what it asks for",
    "BeginTime": "it may not start before a set time; after a requeue Slurm waits some seconds",
    "Cleaning": "Slurm is still ending its last try",
    "Dependency": "it waits for other jobs",
    "DependencyNeverSatisfied": "the job it waits for ended in another way than it asked for",
    "JobArrayTaskLimit": "as many tasks of its array run as it allows",
    "JobHeldAdmin": "an admin, or the toolkit, holds it: `scontrol release` lets it go",
    "JobHeldUser": "its owner holds it: `scontrol release` lets it go",
    "NodeDown": "a node it needs is down",
    "None": "the scheduler has not looked at it yet",
    "PartitionDown": "its partition is down",
    "PartitionNodeLimit": "it asks for more nodes than the partition has",
    "PartitionTimeLimit": "it asks for more time than the partition allows",
    "Priority": "jobs of higher priority go first",
    "QOSMaxGRESPerUser": "its owner runs as many GPUs as the QOS allows",
    "ReqNodeNotAvail": "a node it needs is drained, down or reserved",
    "Resources": "every node it could use is in use",
}
BETWEEN: Final = frozenset(
    {"BeginTime", "Cleaning", "NodeDown", "None", "ReqNodeNotAvail", "Resources"}
)
"""Reasons that Slurm gives a job between two tries: how it waits, and not why."""

ENDS: Final = {
    "BOOT_FAIL": "its nodes did not come up",
    "CANCELLED": "it was cancelled",
    "COMPLETED": "it ended well",
    "DEADLINE": "its deadline passed",
    "FAILED": "its program ended with an error",
    "NODE_FAIL": "it lost a node",
    "OUT_OF_MEMORY": "it used more memory than it had asked for",
    "PREEMPTED": "a job that may preempt it needed its nodes",
    "REQUEUED": "it was put back into the queue",
    "TIMEOUT": "it ran into its time limit",
}


def explain(sheet: HeadReport, number: int, task: int | None = None) -> Answer:
    """Return the answer for one job, array or task.

    There is an answer also when Slurm knows none of that number. For an array with
    several records, it lists the tasks.
    """
    asked = tuple(_asked(sheet.jobs, number, task))
    if len(asked) > 1:
        return _array(sheet, number, asked)
    job = asked[0] if asked else None
    name = str(JobName(number, task)) if job is None else job.label
    if job is None or not {"PENDING", "RUNNING", "SUSPENDED"} & set(job.states):
        verdict, because, then = _past(sheet, name, job)
    elif "PENDING" in job.states:
        verdict, because, then = _pending(sheet, job)
    else:
        verdict, because, then = _running(sheet, job)
    return Answer(
        subject=f"job {name}" + (f" ({job.name}, {job.user})" if job is not None else ""),
        verdict=verdict,
        because=because,
        tried=tries(sheet.decisions),
        next=then,
        decisions=tuple(told(item) for item in sheet.decisions),
        unread=sheet.unread,
    )


def _asked(jobs: Iterable[JobReport], number: int, task: int | None) -> Iterator[JobReport]:
    """Yield the records that the question is about."""
    if task is None:
        yield from (job for job in jobs if number in (job.id, job.array))
        return
    tasks = [job for job in jobs if job.array == number]
    own = [job for job in tasks if job.task == task]
    together = (replace(job, task=task) for job in tasks if holds(job.waiting, task))
    yield from own or together


def _array(sheet: HeadReport, number: int, jobs: Sequence[JobReport]) -> Answer:
    listed = sorted(jobs, key=lambda job: (bool(job.waiting), job.task or 0))
    states = Counter("+".join(job.states).lower() for job in jobs if not job.waiting)
    counts = [f"{count} {state}" for state, count in states.items()]
    counts += [f"waiting: {job.waiting}" for job in jobs if job.waiting]
    because = [_of_array(job) for job in listed[:TASKS_SHOWN]]
    if len(listed) > TASKS_SHOWN:
        because.append(f"and {len(listed) - TASKS_SHOWN} more: `toolkit jobs` lists them")
    return Answer(
        subject=f"job array {number} ({jobs[0].name}, {jobs[0].user})",
        verdict=", ".join(counts),
        because=tuple(because),
        next=f"`toolkit why {number}_TASK` tells of one task",
        decisions=tuple(told(item) for item in sheet.decisions),
        unread=sheet.unread,
    )


def _of_array(job: JobReport) -> str:
    why = f": {REASONS.get(job.reason, job.reason)}" if "PENDING" in job.states else ""
    return f"{job.label}: {'+'.join(job.states).lower()}{why}"


def _pending(sheet: HeadReport, job: JobReport) -> tuple[str, tuple[str, ...], str]:
    waited = f" for {span(sheet.at - job.submitted_at)}" if job.submitted_at else ""
    slurms = REASONS.get(job.reason, f"Slurm says {job.reason}")
    because = [f"{job.reason}: {slurms}"]
    cause = ""
    refusal, loss = last_refusal(sheet.decisions), last_loss(sheet.decisions)
    if refusal is not None:
        slug, code = str(refusal.get("slug")), refusal.get("code")
        cause = MEANINGS.get(slug, slug)
        at = moment(float(refusal.get("at", 0)))
        because.append(f"{at}: nodes could not be had: {slug}" + (f" ({code})" if code else ""))
        said = str(refusal.get("message", ""))
        if said not in job.admin_comment:
            because.append(f"said: {said}"[:500])
    elif loss is not None:
        why = str(loss.get("why"))
        cause = f"it lost {loss.get('node')}: {meaning(why) or why}"
        because.append(
            f"{moment(float(loss.get('at', 0)))}: {loss.get('node')} was set down: {why}"
        )
    if job.restarts:
        because.append(f"it has been requeued {_times(job.restarts)}")
    because += _comments(job)
    held = _held(job)
    ours = job.reason in BETWEEN or (
        held and refusal is not None and refusal.get("hold") in (True, "True")
    )
    verdict = f"{'held' if held else 'pending'}{waited}: {cause if cause and ours else slurms}"
    return verdict, tuple(because), _next_try(sheet, job)


def _held(job: JobReport) -> bool:
    """Return whether the job is held.

    Slurm states another reason while it still ends the job's last attempt.
    """
    return job.held or job.reason.startswith("JobHeld")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _comments(job: JobReport) -> list[str]:
    """Return the head's and the job's comments: a requeue's or hold's cause."""
    return [f"comment: {text}" for text in (job.admin_comment, job.comment) if text]


def _next_try(sheet: HeadReport, job: JobReport) -> str:
    """Return the time of the job's next launch, if known."""
    if _held(job):
        # The array's number would release every task.
        name = job.id if job.task is None else job.label
        return f"nothing until somebody runs: scontrol release {name}"
    waits = []
    asks = ""
    if job.eligible_at is not None and job.eligible_at > sheet.at:
        waits.append((job.eligible_at, "Slurm lets it start then"))
    refusal = last_refusal(sheet.decisions)
    if refusal is not None and refusal.get("slug") == "pool-protected":
        shut = [item for item in _pools_of(sheet, refusal) if item.protected_since is not None]
        waits += [(item.retry_at, f"pool {item.pool} lets a probe through") for item in shut]
    elif refusal is not None and refusal.get("slug") == "not-ended":
        asks = ", as soon as EC2 ends instances again"
    elif refusal is not None:
        asks = _asked_first(sheet, max((at for at, _ in waits), default=sheet.at)) + _smaller(job)
    due = [wait for wait in waits if wait[0] > sheet.at]
    if due:
        at, what = max(due)
        return f"{moment(at)}, in {span(at - sheet.at)}: {what}{asks}"
    return f"at the scheduler's next pass, within seconds of its turn{asks}"


def _smaller(job: JobReport) -> str:
    """Return advice on a smaller request, if fewer nodes would do.

    Slurm takes as many nodes of a range as are free, and can't know how many EC2 has.
    """
    if not 0 < job.node_count < job.most_nodes:
        return ""
    update = f"scontrol update jobid={job.label} numnodes={job.node_count}"
    return f"; all {job.most_nodes} nodes are asked for; {job.node_count} would do: {update}"


def _pools_of(sheet: HeadReport, refusal: Mapping[str, Any]) -> Sequence[StandingReport]:
    """Return the standings of the pools whose nodes were refused.

    They are all pools if the refusal names no node.
    """
    try:
        nodes = hostlist.expand(str(refusal.get("nodes") or ""))
    except BadName:
        return sheet.standings
    pools = {hostlist.pool_of(node) for node in nodes}
    return [item for item in sheet.standings if item.pool in pools or not pools]


def _asked_first(sheet: HeadReport, at: float) -> str:
    """Return the offering that resume requests first if all are unavailable.

    resume then does not wait until they are available again.
    """
    asked = {item.offering for item in tries(sheet.decisions)}
    back = [item for item in sheet.setbacks if item.key in asked and item.until > at]
    if not asked or len(back) < len(asked):
        return ""
    first = min(back, key=lambda item: item.until)
    return f"; {first.key} ({first.code}) is asked for again first"


def _running(sheet: HeadReport, job: JobReport) -> tuple[str, tuple[str, ...], str]:
    up: list[str] = []
    coming: list[str] = []
    nodes = {item.name: item for item in sheet.nodes}
    for name in job.nodes:
        flags = nodes[name].flags if name in nodes else ()
        (coming if {"POWERING_UP", "POWER_UP"} & set(flags) else up).append(name)
    because = tuple(_on(sheet, name) for name in job.nodes)
    if coming:
        verdict = f"starting: {len(up)} of {len(job.nodes)} nodes are up"
        return verdict, because, "it starts when the last of its nodes has registered"
    ran = f" for {span(sheet.at - job.started_at)}" if job.started_at else ""
    return f"running{ran} on {len(job.nodes)} nodes", because, ""


def _on(sheet: HeadReport, name: str) -> str:
    machine = next((m for m in sheet.machines if m.node == name and _live(m.state)), None)
    if machine is None:
        return f"{name}: no machine yet"
    trouble = "".join(f"; {item}" for item in machine.trouble)
    age = span(sheet.at - machine.launched_at)
    return (
        f"{name}: {machine.id}, {machine.type} {machine.lifecycle} in {machine.zone},"
        f" {machine.state}, {age} old{trouble}"
    )


def _past(sheet: HeadReport, name: str, job: JobReport | None) -> tuple[str, tuple[str, ...], str]:
    if job is None and not sheet.attempts:
        if sheet.unread:
            return "not known: Slurm could not be asked", (), ""
        return f"Slurm knows no job {name}", (), "`toolkit jobs` lists those there are"
    state = sheet.attempts[-1].state if sheet.attempts else "+".join(job.states if job else ())
    word = state.split()[0] if state else "?"
    lines = tuple(_attempts(sheet.attempts))
    lost = [_told(item) for item in sheet.decisions if item.get("event") == "interruption notice"]
    noted = _comments(job) if job is not None else []
    return f"{word.lower()}: {ENDS.get(word, 'see the attempts')}", (*lines, *lost, *noted), ""


def _told(item: object) -> str:
    return told(item) if isinstance(item, dict) else str(item)


def _attempts(attempts: tuple[AttemptReport, ...]) -> Iterator[str]:
    for number, item in enumerate(attempts, start=1):
        began = moment(item.started_at) if item.started_at else "never started"
        ran = ""
        if item.started_at and item.ended_at:
            ran = f", ran {span(item.ended_at - item.started_at)}"
        where = f" on {item.nodes}" if item.nodes else ""
        word = item.state.split()[0] if item.state else "?"
        yield f"attempt {number}: {began}{where}{ran}: {word}{_exit(item.exit_code)}"


def _exit(text: str) -> str:
    """Return an exit code and signal from `code:signal`.

    The two codes with a meaning here are explained.
    """
    code, _, signal = text.partition(":")
    if signal not in ("", "0"):
        return f", signal {signal}"
    if code in ("", "0"):
        return ""
    meaning = {
        str(BRING_BACK): " (saved, to be brought back)",
        str(DO_NOT): " (not to be requeued)",
    }
    return f", exit code {code}{meaning.get(code, '')}"


def _live(state: str) -> bool:
    return state in {"pending", "running"}
