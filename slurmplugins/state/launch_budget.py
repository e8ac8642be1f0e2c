"""The launch budget: a limit on the instances launched for a job that does not begin.

Instances that are terminated before their job begins cost money and do no work, and the job comes
back for the next ones. So launches are counted by job, until all its nodes are up. The verdicts:

- `launch-loop`: the job got several times the instances that it needs. It is held.
- `rate-too-low`: the account's launch rate is too low for the job's size and time. It is held.
- `not-ended`: EC2 terminates no instance at present. Then nothing is launched at all, since the
  old instances would run beside the new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BadName, NotTerminated, Throttled, TooLate
from slurmplugins.model.hostlist import compress, expand
from slurmplugins.model.launch import UNRESOLVED_LAUNCH, Failure
from slurmplugins.state.launch_budget_record import (
    REMEMBERED_SECONDS,
    SHUT_SECONDS,
    LaunchHistory,
    RefusedTerminations,
    UnresolvedLaunch,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.launch import JobLaunch
    from slurmplugins.model.node import Node
    from slurmplugins.state.launch_budget_record import Rate, Record


NO_HET_JOBS: Final[Mapping[int, int]] = MappingProxyType({})

LAUNCH_LOOP: Final = "launch-loop"
"""Reason code: the job used up its budget."""
RATE_TOO_LOW: Final = "rate-too-low"
"""Reason code: the account's launch rate is too low for the job."""


@dataclass(frozen=True, slots=True)
class ScreenedLaunches:
    """The result of screening launches."""

    permitted: tuple[JobLaunch, ...]
    """Launches that may go on."""
    refusals: tuple[Failure, ...]
    """Launches that may not, with the reason."""
    record: Record
    """The record afterwards."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The reason why a launch may not go on."""

    reason_code: str
    text: str
    hold: bool
    """The job is held until a person releases it."""


def planned_nodes(job: JobLaunch) -> tuple[NodeName, ...]:
    """Return the nodes for which the launch starts instances."""
    return tuple(node for node_request in job.node_requests for node in node_request.nodes)


def screen(
    record: Record,
    launches: Sequence[JobLaunch],
    now: float,
    rate: Rate,
    protected_pools: Collection[str] = (),
    *,
    het_jobs: Mapping[int, int] = NO_HET_JOBS,
) -> ScreenedLaunches:
    """Decide which launches may go on, and count these.

    Each launch is counted in full until `record_results`, since its process may be killed.

    `protected_pools` are in protected mode, which limits launches by itself. A launch in such pools
    only is not counted. A job with other pools too is counted. Each time that protected mode lets
    it try, it may start instances in one pool and be refused in the other.

    `het_jobs` maps each component to its het job. slurmctld starts the het job as a whole.
    Therefore it is judged and counted as one job, under its own number.
    """
    if text := block_reason(record, now):
        code = record.ends.code
        all_refusals = (
            _failure(job, NotTerminated.reason_code, text, code=code) for job in launches
        )
        return ScreenedLaunches((), tuple(all_refusals), record)
    by_request = _by_request(launches, het_jobs)
    jobs = _without_retaken_nodes(_recent_jobs(record.jobs, now), by_request)
    verdicts: dict[int, _Verdict] = {}
    for request_id, job_parts in by_request.items():
        if _pools_of(job_parts).issubset(protected_pools):
            continue
        history = _judge(jobs.get(request_id), job_parts, now, rate)
        if history.slug:
            verdicts[request_id] = _Verdict(history.slug, history.message, hold=True)
        elif history.started + history.unresolved_count > history.budget:
            text = _unresolved_text(history.unresolved_count)
            verdicts[request_id] = _Verdict(UNRESOLVED_LAUNCH, text, hold=False)
            continue  # this launch is not counted: it does not take place
        jobs[request_id] = history
    permitted: list[JobLaunch] = []
    refusals: list[Failure] = []
    for job in launches:
        verdict = None if job.job is None else verdicts.get(het_jobs.get(job.job, job.job))
        if verdict is None:
            permitted.append(job)
        else:
            refusals.append(_failure(job, verdict.reason_code, verdict.text, hold=verdict.hold))
    return ScreenedLaunches(tuple(permitted), tuple(refusals), replace(record, jobs=jobs))


def _without_retaken_nodes(
    jobs: Mapping[int, LaunchHistory], by_request: Mapping[int, Sequence[JobLaunch]]
) -> dict[int, LaunchHistory]:
    """Return the jobs without nodes that others are launched for.

    If such nodes come up, that does not show that the earlier job has begun.
    """
    retaken_nodes = {
        node for job_parts in by_request.values() for job in job_parts for node in job.nodes
    }
    return {
        job: replace(history, nodes="")
        if job not in by_request
        and history.nodes
        and not retaken_nodes.isdisjoint(_expand(history.nodes))
        else history
        for job, history in jobs.items()
    }


def _pools_of(job_parts: Sequence[JobLaunch]) -> set[str]:
    return {node_request.pool.name for job in job_parts for node_request in job.node_requests}


def _by_request(
    launches: Sequence[JobLaunch], het_jobs: Mapping[int, int]
) -> Mapping[int, list[JobLaunch]]:
    by_request: dict[int, list[JobLaunch]] = {}
    for job in launches:
        if job.job is not None:
            by_request.setdefault(het_jobs.get(job.job, job.job), []).append(job)
    return by_request


def block_reason(record: Record, now: float) -> str:
    """Return the reason why nothing is launched; empty while launches go on."""
    if not record.ends.launches_blocked(now):
        return ""
    return _blocked_text(now - record.ends.since, record.ends.code)


def record_results(
    record: Record,
    charged_counts: Mapping[int, int],
    started_counts: Mapping[int, int],
    failed_jobs: Collection[int],
) -> Record:
    """Return the record after the results of launches are known.

    It replaces the instances that were charged to each job in full by those that were started. A
    job in `failed_jobs` does not wait for its nodes any more.
    """
    jobs = dict(record.jobs)
    for job in charged_counts:
        if (history := jobs.get(job)) is None:
            continue
        count = max(0, history.started - charged_counts[job] + started_counts.get(job, 0))
        jobs[job] = replace(
            history, started=count, nodes="" if job in failed_jobs else history.nodes
        )
        if job in failed_jobs and not (count or history.slug or history.doubts):
            del jobs[job]  # EC2 gave it no instance: its requests are not limited
    return replace(record, jobs=jobs)


def add_unresolved(
    record: Record, unresolved_launches: Mapping[int, Mapping[str, int]], now: float
) -> Record:
    """Return the record with these unanswered launches added.

    `unresolved_launches` holds for each job, by launch id, the instances that may have started.
    """
    jobs = dict(record.jobs)
    for job in unresolved_launches.keys() & jobs.keys():
        additions = tuple(
            UnresolvedLaunch(launch_id, count, now)
            for launch_id, count in unresolved_launches[job].items()
        )
        jobs[job] = replace(jobs[job], doubts=(*jobs[job].doubts, *additions))
    return replace(record, jobs=jobs)


def resolve_launches(
    record: Record, listed_launches: Collection[str], resolved_before: float
) -> Record:
    """Return the record after EC2 listed instances of these launches.

    An unanswered launch from before `resolved_before` without an instance there launched none.
    """
    jobs = dict(record.jobs)
    for job, history in record.jobs.items():
        confirmed_count = sum(
            launch.count for launch in history.doubts if launch.attempt in listed_launches
        )
        unresolved = tuple(
            launch
            for launch in history.doubts
            if launch.attempt not in listed_launches and launch.at > resolved_before
        )
        if unresolved != history.doubts:
            jobs[job] = replace(
                history, started=history.started + confirmed_count, doubts=unresolved
            )
            if not (jobs[job].started or unresolved or history.slug):
                del jobs[job]
    return replace(record, jobs=jobs)


def as_rate_failure(failure: Failure, requested: int, started_count: int, rate: Rate) -> Failure:
    """Return a job's failure, as `rate-too-low` if EC2 was too slow.

    EC2 began to serve the job then, but did not finish in time. The job is to be held.
    """
    if (
        failure.reason_code not in {Throttled.reason_code, TooLate.reason_code}
        or not started_count
        or requested <= rate.max_instances
    ):
        return failure
    text = _too_slow_text(requested, started_count, rate)
    return replace(failure, reason_code=RATE_TOO_LOW, message=text, hold=True)


def record_rate_failures(
    record: Record, failures: Sequence[Failure], het_jobs: Mapping[int, int] = NO_HET_JOBS
) -> Record:
    """Return the record with the verdicts of `as_rate_failure` added.

    These jobs are not launched again unchanged.
    """
    jobs = dict(record.jobs)
    for item in failures:
        request_id = None if item.job is None else het_jobs.get(item.job, item.job)
        if (
            item.reason_code == RATE_TOO_LOW
            and item.hold
            and request_id is not None
            and request_id in jobs
        ):
            jobs[request_id] = replace(jobs[request_id], slug=RATE_TOO_LOW, message=item.message)
    return replace(record, jobs=jobs)


def mark_held(record: Record, jobs: Collection[int]) -> Record:
    """Return the record after Slurm held these jobs.

    The next request for one of them means that a person released it.
    """
    items = record.jobs.items()
    return replace(
        record,
        jobs={
            job: replace(history, held=True) if job in jobs else history for job, history in items
        },
    )


def forget_begun(record: Record, nodes: Mapping[str, Node], now: float) -> Record:
    """Return the record without jobs whose nodes are all up.

    The launches for such a job have succeeded. A later launch, such as after an interruption, gets
    a new budget.
    """
    up_nodes = {name for name, node in nodes.items() if node.up and not node.invalid}
    jobs = {
        job: history
        for job, history in _recent_jobs(record.jobs, now).items()
        if not (history.nodes and up_nodes.issuperset(_expand(history.nodes)))
    }
    return replace(record, jobs=jobs)


def needs_begun_jobs(record: Record) -> bool:
    """Return whether a job may have begun on others' nodes.

    Its own launches failed, or their nodes were launched for another job since. So no node tells
    when it begins. A held job can't begin.
    """
    return any(
        history.started and not history.nodes and not history.held
        for history in record.jobs.values()
    )


def forget_jobs(record: Record, begun_jobs: Collection[int]) -> Record:
    """Return the record without jobs that have begun, by Slurm's own word."""
    return replace(
        record,
        jobs={job: item for job, item in record.jobs.items() if job not in begun_jobs},
    )


def record_terminations(record: Record, now: float, code: str) -> Record:
    """Return the record after a program tried to terminate instances.

    `code` is EC2's error code if it could terminate none, else empty.
    """
    if not code:
        return replace(record, ends=RefusedTerminations())
    previous = record.ends if abs(now - record.ends.at) < SHUT_SECONDS else RefusedTerminations()
    since = previous.since if previous.count else now
    return replace(record, ends=RefusedTerminations(previous.count + 1, code, since, now))


def _judge(
    history: LaunchHistory | None, job_parts: Sequence[JobLaunch], now: float, rate: Rate
) -> LaunchHistory:
    """Return a job's launches, plus this launch or a verdict against it.

    `job_parts` are the launches of the job, or of a het job's components.
    """
    if history is None or history.held or (rate.is_configured and history.slug == RATE_TOO_LOW):
        history = LaunchHistory(asked=0, since=now)
    if history.slug:
        return history
    node_requests = [node_request for job in job_parts for node_request in job.node_requests]
    node_count = sum(len(node_request.nodes) for node_request in node_requests)
    history = replace(history, asked=max(history.asked, node_count))
    single_count = sum(
        len(node_request.nodes)
        for node_request in node_requests
        if all(len(group) == 1 for group in node_request.fallback_order)
    )
    if rate.is_configured and single_count > rate.max_instances:
        return replace(history, slug=RATE_TOO_LOW, message=_too_large_text(single_count, rate))
    if history.started + node_count > history.budget:
        text = _loop_text(history.started, history.asked, now - history.since)
        return replace(history, slug=LAUNCH_LOOP, message=text)
    nodes = compress([node for job in job_parts for node in job.nodes])
    return replace(history, started=history.started + node_count, at=now, nodes=nodes)


def _failure(
    job: JobLaunch, reason_code: str, text: str, *, code: str = "", hold: bool = False
) -> Failure:
    return Failure(job.job, job.nodes, reason_code, code, text, hold)


def _recent_jobs(jobs: Mapping[int, LaunchHistory], now: float) -> Mapping[int, LaunchHistory]:
    return {
        job: history
        for job, history in jobs.items()
        if abs(now - (history.at or history.since)) < REMEMBERED_SECONDS
    }


def _expand(hostlist: str) -> Collection[str]:
    try:
        return expand(hostlist)
    except BadName:  # a damaged file: no node has this name
        return (hostlist,)


def _blocked_text(seconds: float, code: str) -> str:
    """Explain why nothing is launched at all."""
    minutes = _minutes_text(seconds)
    return f"EC2 has terminated nothing for {minutes} ({code}): nothing is launched until it does"


def _loop_text(started_count: int, requested: int, seconds: float) -> str:
    """Explain why a job that does not begin is held."""
    instances = f"{started_count} instances were started for its {requested} nodes"
    return f"{instances} within {_minutes_text(seconds)}, and it has not begun"


def _unresolved_text(count: int) -> str:
    """Explain why a job waits for the outcome of its launches."""
    return (
        f"launches without an answer may have started {count} instances for it;"
        " their outcome is known within minutes"
    )


def _too_large_text(requested: int, rate: Rate) -> str:
    """Explain why a job above the configured rate is held."""
    return (
        f"{requested} nodes are more than the {rate.max_instances:.0f} instances that"
        f" aws.instance_rate (burst {rate.burst:g}, per_second {rate.per_second:g}) starts within"
        f" {rate.seconds:.0f} s, half of slurm.resume_timeout. {_remedy_text(rate)}"
    )


def _too_slow_text(requested: int, started_count: int, rate: Rate) -> str:
    """Explain why a job that EC2 served too slowly is held."""
    return (
        f"EC2 started {started_count} of {requested} instances in {rate.seconds:.0f} s and took no"
        f" more requests; they were terminated. {_remedy_text(rate)}"
    )


def _remedy_text(rate: Rate) -> str:
    published = f"({rate.burst:g} at once, {rate.per_second:g} a second)"
    text = (
        "Have AWS raise the account's rate and set aws.instance_rate to it, or raise"
        " slurm.resume_timeout, or make the job smaller."
    )
    if rate.is_configured:
        return text
    return f"{text} The published rate {published} is enough for {rate.max_instances:.0f}."


def _minutes_text(seconds: float) -> str:
    return f"{max(1.0, seconds / 60):.0f} min"
