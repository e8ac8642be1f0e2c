"""Do the work of ResumeProgram: prepare, plan, carry out.

Modules that are needed only after the call of EC2 are imported then: the call starts sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.config.burst import CAPACITY_SHARE
from slurmplugins.errors import CloudError, EngineError, NotTerminated, SlurmError
from slurmplugins.execution.down_nodes import give_back, give_back_all, notify_jobs
from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause
from slurmplugins.model.launch import Failure
from slurmplugins.power_save import prepare
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.launch.launch_call import LaunchContext
    from slurmplugins.launch.request_tracker import JobTracker
    from slurmplugins.model.actions import Outcome
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Assignment
    from slurmplugins.model.launch import JobLaunch, JobRequest, JobResults, ResumePlan
    from slurmplugins.state.launch_budget_record import Rate


BUG: Final = "bug"
"""Reason of nodes that are given back because our own code failed."""


def resume(engine: Engine, job_requests: Sequence[JobRequest]) -> None:
    """Give every node an instance, or give it back to Slurm.

    Safe to repeat, and to run beside another process. An exception that is no EngineError is raised
    again, after the undecided nodes are given back.
    """
    decided_nodes: set[NodeName] = set()
    deadline = engine.clock.monotonic() + engine.config.resume_timeout * CAPACITY_SHARE
    try:
        with engine.journal.resume_process() as process_id:
            # Claim first: reconcile gives nodes back that stay unclaimed for a while.
            claimed_nodes = prepare.claim(engine, process_id, job_requests)
            plan = prepare.make_plan(engine, process_id, job_requests, claimed_nodes, deadline)
            context = _launch_context(engine, process_id, deadline)
            plan = _screen(context, plan)
            requests = [item for job in plan.launches for item in job.node_requests]
            engine.log.info(
                LogEvent.RESUME_PLANNED,
                run=process_id,
                jobs=len(job_requests),
                adopt=len(plan.adoptions),
                launch=sum(len(item.nodes) for item in requests),
                replace=len(plan.stale_instances),
                busy=hostlist.compress(plan.claimed_by_others),
            )
            _carry_out(context, plan, decided_nodes)
            engine.log.info(LogEvent.RESUME_FINISHED, run=process_id)
    except EngineError as error:  # before any launch: errors of launches are handled per job
        code = error.code if isinstance(error, CloudError) else ""
        hold = isinstance(error, CloudError) and error.holds_job
        failure = Failure(None, (), error.reason_code, code, error.message, hold)
        give_back_all(engine, job_requests, failure)
    except Exception as error:
        # Suspend terminates the instances that were started for these nodes.
        text = f"{type(error).__name__}: {error}"
        give_back_all(engine, job_requests, Failure(None, (), BUG, message=text), decided_nodes)
        raise


def _launch_context(engine: Engine, process_id: str, deadline: float) -> LaunchContext:
    from slurmplugins.launch.launch_call import LaunchContext

    return LaunchContext(
        engine,
        process_id,
        deadline=deadline,
        call_deadline=deadline + engine.config.resume_timeout * (1 - CAPACITY_SHARE),
        rate=launch_rate(engine.config.instance_rate, engine.config.resume_timeout),
        launch_budget=engine.launch_budget,
    )


def launch_rate(instance_rate: tuple[float, float] | None, resume_timeout: float) -> Rate:
    """Return EC2's rate of launches, with the seconds for finding capacity.

    `instance_rate` is the account's, as cluster.yaml states it; None: the published one.
    """
    from slurmplugins.cloud.rate_limit import INSTANCES
    from slurmplugins.state.launch_budget_record import Rate

    burst, per_second = instance_rate or (INSTANCES.burst, INSTANCES.per_second)
    seconds = resume_timeout * CAPACITY_SHARE
    return Rate(burst, per_second, seconds, is_configured=instance_rate is not None)


def _screen(context: LaunchContext, plan: ResumePlan) -> ResumePlan:
    """Drop launches beyond a job's launch budget or in a protected pool.

    A job with such a launch gets no instance at all.
    """
    from slurmplugins.launch import all_or_nothing
    from slurmplugins.power_save import circuit_breaker

    engine = context.engine
    pools = circuit_breaker.load(engine.state).pools
    protected_pools = frozenset(name for name, pool in pools.items() if pool.protected)
    screened = context.launch_budget.screen(
        plan.launches, context.rate, protected_pools, plan.job_requests
    )
    admission = circuit_breaker.admit_launches(
        engine.state, screened.permitted, engine.persistent_clock, engine.config.resume_timeout
    )
    refusals = (*screened.refusals, *admission.refusals)
    return all_or_nothing.reduce_plan(plan, admission.permitted, refusals)


def _carry_out(context: LaunchContext, plan: ResumePlan, decided_nodes: set[NodeName]) -> None:
    """Launch the plan, and report each result to Slurm as it comes.

    `decided_nodes` collects the nodes that have an instance, belong to another process, or were
    given back. Notices to failed jobs have a queue of their own, so that no launch waits for them.

    Each address is set in Slurm as soon as it is known. Otherwise all addresses of a large job
    would be set at its end. If the job fails after that, its nodes are given back, and slurmctld
    forgets the addresses as it powers them down.
    """
    from slurmplugins.launch import launch_call
    from slurmplugins.launch.launcher import launch_jobs
    from slurmplugins.launch.request_tracker import JobTracker

    engine, workers = context.engine, context.engine.workers
    reported: set[Assignment] = set()
    with (
        workers.background_queue(urgent=False) as queue_notice,
        workers.background_queue(urgent=True) as queue_report,
    ):

        def report_addresses(assignments: Sequence[Assignment]) -> None:
            reported.update(_assign(engine, [item for item in assignments if item not in reported]))

        def report_results(results: JobResults) -> None:
            failures = context.launch_budget.record_results(results, context.rate)
            decided_nodes.update(results.served_nodes)
            report_addresses(results.assignments)
            applied_failures = give_back(engine, failures, context.process_id)
            failed_nodes = [node for failure in failures for node in failure.nodes]
            decided_nodes.update(failed_nodes)
            prepare.release(engine, context.process_id, [*results.served_nodes, *failed_nodes])
            queue_notice(lambda: notify_jobs(engine, applied_failures))

        decided_nodes.update(plan.claimed_by_others)
        job_tracker = JobTracker(
            plan,
            lambda ids: launch_call.terminate(context, ids),
            lambda results: queue_report(lambda: report_results(results)),
            on_assigned=lambda assignments: queue_report(lambda: report_addresses(assignments)),
        )
        job_tracker.decide_planned()
        if plan.stale_instances or plan.unterminated_instances:
            _launch_beside_terminations(context, plan, job_tracker)
        else:
            launch_jobs(context, plan.launches, job_tracker)


def _launch_beside_terminations(
    context: LaunchContext, plan: ResumePlan, job_tracker: JobTracker
) -> None:
    """Launch each job once the instances that it replaces are terminated.

    A job waits for the terminations that its own request needs, and for no others. If such an
    instance can't be terminated, nothing is launched for its node, nor for a request that needs
    that node.
    """
    from slurmplugins.launch.launcher import launch_jobs
    from slurmplugins.model.actions import Terminate

    instances_by_reason = {
        "launched before this request, or for another pool": plan.stale_instances,
        "its termination was decided before": plan.unterminated_instances,
    }
    terminations = [
        Terminate(instance, EndCause.ORPHAN, reason)
        for reason, instances in instances_by_reason.items()
        for instance in instances
    ]
    stale_nodes = {item.instance.node for item in terminations if item.instance.node is not None}
    waiting_ids = job_tracker.requests(stale_nodes)
    unblocked_jobs: list[JobLaunch] = []
    waiting_jobs: list[JobLaunch] = []
    for job in plan.launches:
        is_unblocked = stale_nodes.isdisjoint(job.nodes)
        is_unblocked = is_unblocked and waiting_ids.isdisjoint(job_tracker.requests(job.nodes))
        (unblocked_jobs if is_unblocked else waiting_jobs).append(job)

    def launch_waiting_jobs() -> None:
        unterminated = _unterminated(context.engine.executor.run(terminations))
        launch_jobs(context, waiting_jobs, job_tracker, unterminated)

    context.engine.workers.map(
        lambda work: work(),
        [lambda: launch_jobs(context, unblocked_jobs, job_tracker), launch_waiting_jobs],
    )


def _unterminated(outcomes: Iterable[Outcome]) -> dict[NodeName, NotTerminated]:
    """Map each node to EC2's error for its instance's failed termination."""
    from slurmplugins.model.actions import Terminate

    error_by_node: dict[NodeName, NotTerminated] = {}
    for item in outcomes:
        if item.error and isinstance(item.action, Terminate) and item.action.instance.node:
            instance = item.action.instance
            code, separator, _ = item.error.partition(":")
            text = f"{instance.id} of {instance.node} could not be terminated: {item.error}"
            error_by_node[item.action.instance.node] = NotTerminated(
                text, code=code if separator else ""
            )
    return error_by_node


def _assign(engine: Engine, assignments: Sequence[Assignment]) -> Sequence[Assignment]:
    """Set the nodes' addresses and ids in Slurm; return those set.

    A failure is only logged: each node reports both when it registers.
    """
    addressed = [item for item in assignments if item.address and item.type]
    if not addressed:
        return ()
    try:
        engine.slurm.assign(addressed)
    except SlurmError as error:
        engine.log.warning(LogEvent.NODE_ADDRESSES_NOT_SET, message=error.message)
        return ()
    return addressed
