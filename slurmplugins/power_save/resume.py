"""Do the work of ResumeProgram: read, plan, execute.

Modules that are needed only after EC2 was read are imported then, so that it is read sooner.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import CloudError, EngineError, NotEnded, SlurmError
from slurmplugins.execution.down_nodes import give_back, give_back_all, tell_jobs
from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause
from slurmplugins.model.launch import Failure
from slurmplugins.power_save import prepare

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.launch.ec2_quotas import Quotas
    from slurmplugins.launch.launcher import Launcher
    from slurmplugins.launch.request_tracker import Board
    from slurmplugins.model.actions import Outcome
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Assignment
    from slurmplugins.model.launch import JobLaunch, JobRequest, Results, ResumePlan
    from slurmplugins.state.launch_budget import Rate
    from slurmplugins.state.launch_budget_file import Brake


BUDGET_SHARE: Final = 0.5
"""Share of ResumeTimeout for finding capacity; the rest is for booting. Calls under way at its end
may go on. After ResumeTimeout nothing is launched, since Slurm has given up on the nodes."""

BUG: Final = "bug"
"""Reason of nodes that are given back because our own code failed."""


def resume(engine: Engine, asks: Sequence[JobRequest]) -> None:
    """Give every node an instance, or give it back to Slurm.

    Safe to repeat and to overlap. An exception that is no EngineError is raised again. The nodes
    that it left undecided are given back first.
    """
    decided: set[NodeName] = set()
    deadline = engine.clock.monotonic() + engine.config.resume_timeout * BUDGET_SHARE
    try:
        with engine.journal.run() as run:
            # Claim first: reconcile gives nodes back that stay unclaimed for a while.
            mine = prepare.claim(engine, run, asks)
            plan = prepare.make(engine, run, asks, mine, deadline)
            brake = engine.brake
            plan = _screened(engine, brake, plan)
            engine.log.info(
                "planned",
                run=run,
                jobs=len(asks),
                adopt=len(plan.adopt),
                launch=sum(len(ask.nodes) for job in plan.launches for ask in job.asks),
                replace=len(plan.replace),
                busy=hostlist.compress(plan.busy),
            )
            _carry_out(engine, brake, run, plan, decided=decided, deadline=deadline)
            engine.log.info("done", run=run)
    except EngineError as error:  # before any launch: errors of launches are handled per job
        code = error.code if isinstance(error, CloudError) else ""
        hold = isinstance(error, CloudError) and error.holds
        give_back_all(engine, asks, Failure(None, (), error.slug, code, error.message, hold))
    except Exception as error:
        # Suspend terminates the instances that were started for these nodes.
        text = f"{type(error).__name__}: {error}"
        give_back_all(engine, asks, Failure(None, (), BUG, message=text), decided)
        raise


def _screened(engine: Engine, brake: Brake, plan: ResumePlan) -> ResumePlan:
    """Drop launches that would only be terminated again.

    A job with such a launch gets nothing at all.
    """
    from slurmplugins.launch import all_or_nothing
    from slurmplugins.power_save import circuit_breaker

    patience = engine.config.resume_timeout
    pools = circuit_breaker.load(engine.state).pools
    protected = frozenset(name for name, pool in pools.items() if pool.protected)
    braked = brake.gate(plan.launches, _rate(engine), protected, plan.asks)
    found = circuit_breaker.gate(engine.state, braked.let, engine.steady, patience)
    return all_or_nothing.screened(plan, found.let, (*braked.refused, *found.refused))


def _rate(engine: Engine) -> Rate:
    """Return EC2's launch rate, and the time for finding capacity."""
    from slurmplugins.cloud.rate_limit import INSTANCES
    from slurmplugins.state.launch_budget import Rate

    config = engine.config
    burst, per_second = config.instance_rate or (INSTANCES.burst, INSTANCES.per_second)
    seconds = config.resume_timeout * BUDGET_SHARE
    return Rate(burst, per_second, seconds, told=config.instance_rate is not None)


def _carry_out(
    engine: Engine,
    brake: Brake,
    run: str,
    plan: ResumePlan,
    *,
    decided: set[NodeName],
    deadline: float,
) -> None:
    """Launch the plan, and tell Slurm each result as it comes.

    `decided` receives the nodes that are served, belong to another run, or were given back. No
    launch waits for Slurm's notices to other jobs.

    Slurm learns each address as it comes: a large job's would otherwise all come last. If the job
    fails after all, its nodes are given back. slurmctld forgets their addresses as it powers them
    down.
    """
    crew = engine.crew
    addressed: set[Assignment] = set()
    with crew.aside(urgent=False) as of_jobs, crew.aside(urgent=True) as of_nodes:

        def assign(pending: Sequence[Assignment]) -> None:
            news = [item for item in pending if item not in addressed]
            addressed.update(_assign(engine, news))

        def tell_slurm(results: Results) -> None:
            failures = brake.settled(results, launcher.started, _rate(engine))
            decided.update(results.served)
            assign(results.assignments)
            told = give_back(engine, failures, run)
            given_back = [node for failure in failures for node in failure.nodes]
            decided.update(given_back)
            prepare.release(engine, run, [*results.served, *given_back])
            of_jobs(lambda: tell_jobs(engine, told))

        from slurmplugins.launch.ec2_quotas import Quotas
        from slurmplugins.launch.request_tracker import Board

        decided.update(plan.busy)
        quotas = Quotas(plan.filling)
        launcher = _launcher(engine, run, deadline, quotas)
        board = Board(
            plan,
            quotas,
            lambda ids: launcher.end(ids, run),
            lambda found: of_nodes(lambda: tell_slurm(found)),
            named=lambda pending: of_nodes(lambda: assign(pending)),
        )
        board.open()
        _launch(engine, run, plan, launcher, board)


def _launch(engine: Engine, run: str, plan: ResumePlan, launcher: Launcher, board: Board) -> None:
    """Launch the plan's jobs, each after the instances that it replaces.

    A job waits for the terminations that its own request needs, and for no others. If one of these
    instances can't be terminated, nothing is started beside it. Nor is anything started for a
    request that can't begin without its node.
    """
    from slurmplugins.model.actions import Terminate

    first = [Terminate(item, EndCause.ORPHAN, "left over from before") for item in plan.replace]
    first += [
        Terminate(item, EndCause.ORPHAN, "its end was decided before") for item in plan.unended
    ]
    stale = {item.instance.node for item in first if item.instance.node is not None}
    waiting = board.requests(stale)
    free: list[JobLaunch] = []
    held_up: list[JobLaunch] = []
    for job in plan.launches:
        alone = stale.isdisjoint(job.nodes) and waiting.isdisjoint(board.requests(job.nodes))
        (free if alone else held_up).append(job)

    def ahead() -> None:
        launcher.launch(free, run, board)

    def behind() -> None:
        kept = _kept(engine.executor.run(first))
        launcher.launch(held_up, run, board, kept)

    engine.crew.map(lambda work: work(), [ahead, behind] if stale else [ahead])


def _kept(outcomes: Iterable[Outcome]) -> dict[NodeName, NotEnded]:
    """Map nodes to EC2's reason why their old instance still lives.

    The instance should have been terminated.
    """
    from slurmplugins.model.actions import Terminate

    found: dict[NodeName, NotEnded] = {}
    for item in outcomes:
        if item.error and isinstance(item.action, Terminate) and item.action.instance.node:
            instance = item.action.instance
            code, colon, _ = item.error.partition(":")
            text = f"{instance.id} of {instance.node} should end and lives: {item.error}"
            found[item.action.instance.node] = NotEnded(text, code=code if colon else "")
    return found


def _launcher(engine: Engine, run: str, deadline: float, quotas: Quotas) -> Launcher:
    from random import random

    from slurmplugins.launch.launcher import Launcher

    return Launcher(
        cluster=engine.config.cluster,
        cloud=engine.cloud,
        journal=engine.journal,
        memory=engine.memory,
        clock=engine.clock,
        log=engine.log.bind(run=run),
        attempt=lambda: os.urandom(12).hex(),
        jitter=random,
        deadline=deadline,
        latest=deadline + engine.config.resume_timeout * (1 - BUDGET_SHARE),
        crew=engine.crew,
        quotas=quotas,
        brake=engine.brake,
        burst=_rate(engine).burst,
    )


def _assign(engine: Engine, pending: Sequence[Assignment]) -> Sequence[Assignment]:
    """Tell Slurm addresses and ids; return the assignments that it has now.

    This is a courtesy: a node brings both when it registers.
    """
    known = [item for item in pending if item.address and item.type]
    if not known:
        return ()
    try:
        engine.slurm.assign(known)
    except SlurmError as error:
        engine.log.warning("assign failed", message=error.message)
        return ()
    return known
