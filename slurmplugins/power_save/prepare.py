"""Prepare the plan of ResumeProgram: claim, resolve earlier launches, read EC2 and Slurm, plan.

Modules that are needed only after the call of EC2 are imported then: the call starts sooner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import CloudError, SlurmError, SlurmUnreachable, StateError
from slurmplugins.launch import all_or_nothing
from slurmplugins.model.instance import PolicyName
from slurmplugins.model.launch import Failure
from slurmplugins.slurm import node_queries
from slurmplugins.slurm.node_queries import known_nodes
from slurmplugins.state.journal import LISTING_DELAY_SECONDS
from slurmplugins.state.queue_time import QueueTimes
from slurmplugins.system.log_events import LogEvent
from slurmplugins.system.retry import doubling, jittered, retry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.launch import JobRequest, ResumePlan
    from slurmplugins.model.node import Node
    from slurmplugins.state.journal_view import JournalView


LIST_TRIES: Final = 4
"""Lists that are read until a plan is made from a fresh one."""

RESOLVING_WAIT: Final = 60.0
"""Seconds to wait for nodes that another process claims only to resolve an earlier launch."""

RESOLVING_PAUSE: Final = 1.0

LIST_CALL_TRIES: Final = 4
"""Tries of one DescribeInstances call."""

FRESH_SECONDS: Final = LISTING_DELAY_SECONDS / 2
"""Greatest age of a list when the plan is made; an older one is read again. Otherwise an instance
launched since could be missing from both the list and the journal's recent launches."""


def claim(
    engine: Engine, process_id: str, job_requests: Sequence[JobRequest]
) -> frozenset[NodeName]:
    """Claim the requested nodes that no other process works on.

    Another process may claim nodes only to resolve an earlier launch. This waits for those, up to
    RESOLVING_WAIT seconds. Returns the claimed nodes. Raises StateError.
    """
    requested_nodes = tuple(_nodes(job_requests))
    deadline = engine.clock.monotonic() + RESOLVING_WAIT
    resolving_nodes: set[NodeName] = set()

    def choose(view: JournalView) -> Iterable[NodeName]:
        resolving_nodes.clear()
        resolving_nodes.update(view.claimed_to_resolve.intersection(requested_nodes))
        return [node for node in requested_nodes if node not in view.claimed_nodes]

    while True:
        claimed_nodes = engine.journal.claim(process_id, choose)
        if not resolving_nodes or engine.clock.monotonic() >= deadline:
            return frozenset(claimed_nodes)
        engine.clock.sleep(RESOLVING_PAUSE)


def release(engine: Engine, process_id: str, nodes: Collection[NodeName]) -> None:
    """Release claims; safe to miss, since claims end with their process."""
    try:
        if nodes:
            engine.journal.release(process_id, nodes)
    except StateError as error:
        engine.log.failure(LogEvent.JOURNAL_WRITE_FAILED, message=error.message)


def make_plan(
    engine: Engine,
    process_id: str,
    job_requests: Sequence[JobRequest],
    claimed_nodes: frozenset[NodeName],
    deadline: float,
) -> ResumePlan:
    """Plan for the nodes that Slurm waits for and that are claimed.

    A request gets everything or nothing: if one part of it gets nothing, no part gets anything.
    Each dropped request changes the plan, so it is made again until none is dropped. Raises
    CloudError or StateError.
    """
    queue_seconds = _queue_seconds(engine, job_requests)
    _resolve_launches(engine, process_id, claimed_nodes, deadline)
    plan, job_requests = _first_plan(engine, process_id, job_requests, queue_seconds)
    node_by_name: dict[NodeName, Node] = {}
    failures: list[Failure] = []
    dropped: list[JobRequest] = []
    slurm_silent = False
    while True:
        slurm_silent = slurm_silent or not _read_nodes(engine, plan, node_by_name)
        check = _check_requests(job_requests, plan, None if slurm_silent else node_by_name)
        if check.remaining == tuple(job_requests):
            break
        kept_nodes = frozenset(_nodes((*check.remaining, *check.failed)))
        release(
            engine,
            process_id,
            [node for node in _nodes(job_requests) if node not in kept_nodes],
        )
        dropped += check.failed
        failures += check.failures
        job_requests = check.remaining
        plan = _plan_from_fresh_list(engine, process_id, job_requests, queue_seconds)
    return replace(
        plan, failures=(*failures, *plan.failures), job_requests=(*job_requests, *dropped)
    )


@dataclass(frozen=True, slots=True)
class _RequestCheck:
    """The requests that go on, and those that fail as a whole."""

    remaining: tuple[JobRequest, ...]
    failed: tuple[JobRequest, ...]
    failures: tuple[Failure, ...]


def _check_requests(
    job_requests: Sequence[JobRequest],
    plan: ResumePlan,
    node_by_name: Mapping[NodeName, Node] | None,
) -> _RequestCheck:
    """Check which requests Slurm still awaits, and which have failed parts.

    `node_by_name` is Slurm's answer about the plan's nodes, or None if slurmctld is silent.
    """
    from slurmplugins.power_save import planner

    awaited_requests, lost_failures = (
        _without_replacement(job_requests, plan)
        if node_by_name is None
        else planner.still_awaited(job_requests, plan, node_by_name)
    )
    failures = (*lost_failures, *all_or_nothing.spreading_failures(job_requests, plan.failures))
    failed_requests = all_or_nothing.failures_by_request(job_requests, failures)
    failed = tuple(
        job_request
        for job_request in job_requests
        if all_or_nothing.request_id(job_request) in failed_requests
    )
    remaining = all_or_nothing.drop_failed(awaited_requests, failed_requests)
    return _RequestCheck(remaining, failed, failures)


def _nodes(job_requests: Iterable[JobRequest]) -> Iterator[NodeName]:
    for job_request in job_requests:
        yield from job_request.nodes


def _first_plan(
    engine: Engine,
    process_id: str,
    job_requests: Sequence[JobRequest],
    queue_seconds: Mapping[int, float],
) -> tuple[ResumePlan, Sequence[JobRequest]]:
    """Plan once, and read het jobs from slurmctld at the same time.

    Returns the plan, and the requests with the number of their het job.
    """
    het_jobs: dict[int, int] = {}
    with engine.workers.background_queue(urgent=True) as run_beside:
        if all_or_nothing.may_have_het_jobs(job_requests):
            run_beside(lambda: het_jobs.update(_het_jobs(engine)))
        plan = _plan_from_fresh_list(engine, process_id, job_requests, queue_seconds)
    return plan, all_or_nothing.link_het_jobs(job_requests, het_jobs)


def _het_jobs(engine: Engine) -> Mapping[int, int]:
    """Map each component to its het job.

    Empty if slurmctld does not answer. Each component then counts as a job of its own.
    """
    try:
        return engine.slurm.het_jobs()
    except SlurmError as error:
        engine.log.warning(LogEvent.HET_JOB_QUERY_FAILED, message=error.message)
        return {}


def _plan_from_fresh_list(
    engine: Engine,
    process_id: str,
    job_requests: Sequence[JobRequest],
    queue_seconds: Mapping[int, float],
) -> ResumePlan:
    for _ in range(LIST_TRIES):  # not `retry`: no call failed, and a pause would not help
        if (plan := _plan_once(engine, process_id, job_requests, queue_seconds)) is not None:
            return plan
    raise StateError(f"EC2's list of instances was too old in each of {LIST_TRIES} tries")


def _plan_once(
    engine: Engine,
    process_id: str,
    job_requests: Sequence[JobRequest],
    queue_seconds: Mapping[int, float],
) -> ResumePlan | None:
    """Read EC2, then plan and claim under the journal's lock.

    No other process can claim between the plan and the claim. Returns None if the list is too old
    when the lock is held.
    """
    instances, listed_at = list_instances(engine)
    from slurmplugins.power_save import planner

    plans: list[ResumePlan] = []

    def choose(view: JournalView) -> Iterable[NodeName]:
        if engine.clock.monotonic() - listed_at > FRESH_SECONDS:
            return ()
        now = engine.clock.now()
        plans.append(
            planner.plan_resume(
                job_requests, instances, view, engine.config, now, queue_seconds=queue_seconds
            )
        )
        return plans[-1].nodes_to_claim

    engine.journal.claim(process_id, choose)
    return plans[-1] if plans else None


def _read_nodes(engine: Engine, plan: ResumePlan, node_by_name: dict[NodeName, Node]) -> bool:
    """Read the plan's nodes from Slurm into `node_by_name`.

    Returns False if slurmctld does not answer. The caller then trusts the resume request: it is a
    moment old, and a slurmctld that restarts still waits for the nodes. No instance is terminated
    on that trust alone, so a plan that replaces one gets more tries.
    """
    new_nodes = [node for node in plan.affected_nodes if node not in node_by_name]
    tries = node_queries.READ_TRIES if plan.stale_instances else 1
    nodes = node_queries.with_retries(
        engine.clock, engine.log, lambda: known_nodes(engine.slurm, new_nodes), tries
    )
    node_by_name |= nodes or {}
    return nodes is not None


def _without_replacement(
    job_requests: Sequence[JobRequest], plan: ResumePlan
) -> tuple[list[JobRequest], list[Failure]]:
    """Keep the requests that replace no instance; fail the others."""
    stale_nodes = {item.node for item in plan.stale_instances}
    remaining: list[JobRequest] = []
    failures: list[Failure] = []
    for job_request in job_requests:
        if (
            stale_node := next((node for node in job_request.nodes if node in stale_nodes), None)
        ) is None:
            remaining.append(job_request)
        else:
            text = f"{stale_node} has an older instance, and slurmctld does not say whether "
            text += "it is in use"
            failures.append(
                Failure(
                    job_request.job, job_request.nodes, SlurmUnreachable.reason_code, message=text
                )
            )
    return remaining, failures


def _resolve_launches(
    engine: Engine, process_id: str, claimed_nodes: frozenset[NodeName], deadline: float
) -> None:
    if engine.journal.view().unresolved_nodes.isdisjoint(claimed_nodes):
        return
    from slurmplugins.launch import launch_call

    launch_call.resolve(engine, process_id, claimed_nodes, deadline)


def _queue_seconds(engine: Engine, job_requests: Sequence[JobRequest]) -> Mapping[int, float]:
    """Return the jobs' time in the queue, if a policy needs it."""
    policies = engine.config.policies.values()
    if not any(item.name is PolicyName.ON_DEMAND_AFTER for item in policies):
        return {}
    return queue_times(
        engine, [job_request.job for job_request in job_requests if job_request.job is not None]
    )


def list_instances(engine: Engine) -> tuple[tuple[Instance, ...], float]:
    """List the instances, with retries.

    Returns them, and the monotonic time just before the call: the list is no older than that.
    Raises CloudError.
    """

    def read() -> tuple[tuple[Instance, ...], float]:
        start_time = engine.clock.monotonic()
        return engine.cloud.instances(), start_time

    def log_error(error: CloudError) -> None:
        engine.log.warning(LogEvent.INSTANCE_QUERY_FAILED, code=error.code, message=error.message)

    pauses = jittered(doubling(1.0, LIST_CALL_TRIES))
    return retry(
        read,
        CloudError,
        pauses,
        engine.clock,
        failed=log_error,
        repeats=lambda error: error.retryable,
    )


def queue_times(engine: Engine, jobs: Sequence[int]) -> Mapping[int, float]:
    """Return the jobs' seconds in the queue.

    Without an answer of slurmctld, the time counts from the job's first request.
    """
    try:
        submit_times = {job.id: job.submitted_at for job in engine.slurm.jobs()}
    except SlurmError as error:
        engine.log.warning(LogEvent.JOB_QUERY_FAILED, message=error.message)
        submit_times = {}
    return QueueTimes(engine.state / "waits.json", engine.clock).seconds_of(jobs, submit_times)
