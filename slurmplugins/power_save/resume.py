"""Do the work of ResumeProgram: read, plan, execute.

Modules that are needed only after EC2 was read are imported then, so that it is read sooner.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import CloudError, EngineError, NotTerminated, SlurmError
from slurmplugins.execution.down_nodes import give_back, give_back_all, notify_jobs
from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause
from slurmplugins.model.launch import Failure
from slurmplugins.power_save import prepare

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.launch.ec2_quotas import QuotaUsage
    from slurmplugins.launch.launcher import Launcher
    from slurmplugins.launch.request_tracker import JobTracker
    from slurmplugins.model.actions import Outcome
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Assignment
    from slurmplugins.model.launch import JobLaunch, JobRequest, JobResults, ResumePlan
    from slurmplugins.state.launch_budget import Rate
    from slurmplugins.state.launch_budget_file import LaunchBudget


CAPACITY_SHARE: Final = 0.5
"""Share of ResumeTimeout for finding capacity; the rest is for booting. Calls under way at its end
may go on. After ResumeTimeout nothing is launched, since Slurm has given up on the nodes."""

BUG: Final = "bug"
"""Reason of nodes that are given back because our own code failed."""


def resume(engine: Engine, job_requests: Sequence[JobRequest]) -> None:
    """Give every node an instance, or give it back to Slurm.

    Safe to repeat and to overlap. An exception that is no EngineError is raised again. The nodes
    that it left undecided are given back first.
    """
    decided_nodes: set[NodeName] = set()
    deadline = engine.clock.monotonic() + engine.config.resume_timeout * CAPACITY_SHARE
    try:
        with engine.journal.resume_process() as process_id:
            # Claim first: reconcile gives nodes back that stay unclaimed for a while.
            claimed_nodes = prepare.claim(engine, process_id, job_requests)
            plan = prepare.make_plan(engine, process_id, job_requests, claimed_nodes, deadline)
            launch_budget = engine.launch_budget
            plan = _screen(engine, launch_budget, plan)
            engine.log.info(
                "planned",
                run=process_id,
                jobs=len(job_requests),
                adopt=len(plan.adoptions),
                launch=sum(
                    len(pool_request.nodes)
                    for job in plan.launches
                    for pool_request in job.pool_requests
                ),
                replace=len(plan.stale_instances),
                busy=hostlist.compress(plan.claimed_by_others),
            )
            _carry_out(
                engine,
                launch_budget,
                process_id,
                plan,
                decided_nodes=decided_nodes,
                deadline=deadline,
            )
            engine.log.info("done", run=process_id)
    except EngineError as error:  # before any launch: errors of launches are handled per job
        code = error.code if isinstance(error, CloudError) else ""
        hold = isinstance(error, CloudError) and error.holds_job
        give_back_all(
            engine, job_requests, Failure(None, (), error.reason_code, code, error.message, hold)
        )
    except Exception as error:
        # Suspend terminates the instances that were started for these nodes.
        text = f"{type(error).__name__}: {error}"
        give_back_all(engine, job_requests, Failure(None, (), BUG, message=text), decided_nodes)
        raise


def _screen(engine: Engine, launch_budget: LaunchBudget, plan: ResumePlan) -> ResumePlan:
    """Drop launches that would only be terminated again.

    A job with such a launch gets nothing at all.
    """
    from slurmplugins.launch import all_or_nothing
    from slurmplugins.power_save import circuit_breaker

    patience = engine.config.resume_timeout
    pools = circuit_breaker.load(engine.state).pools
    protected_pools = frozenset(name for name, pool in pools.items() if pool.protected)
    screened = launch_budget.screen(
        plan.launches, _launch_rate(engine), protected_pools, plan.job_requests
    )
    admission = circuit_breaker.admit_launches(
        engine.state, screened.permitted, engine.persistent_clock, patience
    )
    return all_or_nothing.reduce_plan(
        plan, admission.permitted, (*screened.refusals, *admission.refusals)
    )


def _launch_rate(engine: Engine) -> Rate:
    """Return EC2's launch rate, and the time for finding capacity."""
    from slurmplugins.cloud.rate_limit import INSTANCES
    from slurmplugins.state.launch_budget import Rate

    config = engine.config
    burst, per_second = config.instance_rate or (INSTANCES.burst, INSTANCES.per_second)
    seconds = config.resume_timeout * CAPACITY_SHARE
    return Rate(burst, per_second, seconds, is_configured=config.instance_rate is not None)


def _carry_out(
    engine: Engine,
    launch_budget: LaunchBudget,
    process_id: str,
    plan: ResumePlan,
    *,
    decided_nodes: set[NodeName],
    deadline: float,
) -> None:
    """Launch the plan, and tell Slurm each result as it comes.

    `decided` receives the nodes that are served, belong to another run, or were given back. No
    launch waits for Slurm's notices to other jobs.

    Slurm learns each address as it comes: a large job's would otherwise all come last. If the job
    fails after all, its nodes are given back. slurmctld forgets their addresses as it powers them
    down.
    """
    crew = engine.workers
    addressed_instances: set[Assignment] = set()
    with (
        crew.background_queue(urgent=False) as queue_notice,
        crew.background_queue(urgent=True) as notify_nodes,
    ):

        def report_addresses(assignments: Sequence[Assignment]) -> None:
            new_assignments = [item for item in assignments if item not in addressed_instances]
            addressed_instances.update(_assign(engine, new_assignments))

        def report_results(results: JobResults) -> None:
            failures = launch_budget.record_results(
                results, launcher.started_instances, _launch_rate(engine)
            )
            decided_nodes.update(results.served_nodes)
            report_addresses(results.assignments)
            applied_failures = give_back(engine, failures, process_id)
            failed_nodes = [node for failure in failures for node in failure.nodes]
            decided_nodes.update(failed_nodes)
            prepare.release(engine, process_id, [*results.served_nodes, *failed_nodes])
            queue_notice(lambda: notify_jobs(engine, applied_failures))

        from slurmplugins.launch.ec2_quotas import QuotaUsage
        from slurmplugins.launch.request_tracker import JobTracker

        decided_nodes.update(plan.claimed_by_others)
        quotas = QuotaUsage(plan.nodes_by_quota)
        launcher = _launcher(engine, process_id, deadline, quotas)
        job_tracker = JobTracker(
            plan,
            quotas,
            lambda ids: launcher.terminate(ids, process_id),
            lambda job_results: notify_nodes(lambda: report_results(job_results)),
            on_assigned=lambda assignments: notify_nodes(lambda: report_addresses(assignments)),
        )
        job_tracker.decide_planned()
        _launch_jobs(engine, process_id, plan, launcher, job_tracker)


def _launch_jobs(
    engine: Engine, process_id: str, plan: ResumePlan, launcher: Launcher, job_tracker: JobTracker
) -> None:
    """Launch the plan's jobs, each after the instances that it replaces.

    A job waits for the terminations that its own request needs, and for no others. If one of these
    instances can't be terminated, nothing is started beside it. Nor is anything started for a
    request that can't begin without its node.
    """
    from slurmplugins.model.actions import Terminate

    terminations = [
        Terminate(item, EndCause.ORPHAN, "left over from before") for item in plan.stale_instances
    ]
    terminations += [
        Terminate(item, EndCause.ORPHAN, "its end was decided before")
        for item in plan.unterminated_instances
    ]
    stale_nodes = {item.instance.node for item in terminations if item.instance.node is not None}
    waiting_ids = job_tracker.requests(stale_nodes)
    free_jobs: list[JobLaunch] = []
    waiting_jobs: list[JobLaunch] = []
    for job in plan.launches:
        is_independent = stale_nodes.isdisjoint(job.nodes) and waiting_ids.isdisjoint(
            job_tracker.requests(job.nodes)
        )
        (free_jobs if is_independent else waiting_jobs).append(job)

    def launch_free_jobs() -> None:
        launcher.launch(free_jobs, process_id, job_tracker)

    def launch_waiting_jobs() -> None:
        unterminated = _unterminated(engine.executor.run(terminations))
        launcher.launch(waiting_jobs, process_id, job_tracker, unterminated)

    engine.workers.map(
        lambda work: work(),
        [launch_free_jobs, launch_waiting_jobs] if stale_nodes else [launch_free_jobs],
    )


def _unterminated(outcomes: Iterable[Outcome]) -> dict[NodeName, NotTerminated]:
    """Map nodes to EC2's reason why their old instance still lives.

    The instance should have been terminated.
    """
    from slurmplugins.model.actions import Terminate

    error_by_node: dict[NodeName, NotTerminated] = {}
    for item in outcomes:
        if item.error and isinstance(item.action, Terminate) and item.action.instance.node:
            instance = item.action.instance
            code, colon, _ = item.error.partition(":")
            text = f"{instance.id} of {instance.node} should end and lives: {item.error}"
            error_by_node[item.action.instance.node] = NotTerminated(
                text, code=code if colon else ""
            )
    return error_by_node


def _launcher(engine: Engine, process_id: str, deadline: float, quotas: QuotaUsage) -> Launcher:
    from random import random

    from slurmplugins.launch.launcher import Launcher

    return Launcher(
        cluster=engine.config.cluster,
        cloud=engine.cloud,
        journal=engine.journal,
        unavailable_offerings=engine.unavailable_offerings,
        clock=engine.clock,
        log=engine.log.bind(run=process_id),
        new_launch_id=lambda: os.urandom(12).hex(),
        jitter=random,
        deadline=deadline,
        call_deadline=deadline + engine.config.resume_timeout * (1 - CAPACITY_SHARE),
        workers=engine.workers,
        quotas=quotas,
        launch_budget=engine.launch_budget,
        burst=_launch_rate(engine).burst,
    )


def _assign(engine: Engine, assignments: Sequence[Assignment]) -> Sequence[Assignment]:
    """Tell Slurm addresses and ids; return the assignments that it has now.

    This is a courtesy: a node brings both when it registers.
    """
    addressed = [item for item in assignments if item.address and item.type]
    if not addressed:
        return ()
    try:
        engine.slurm.assign(addressed)
    except SlurmError as error:
        engine.log.warning("assign failed", message=error.message)
        return ()
    return addressed
