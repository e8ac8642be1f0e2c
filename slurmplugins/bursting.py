"""What resume, suspend and resume_fail do, given the engine's parts: read, plan, execute."""

from __future__ import annotations

import random
import secrets
from typing import TYPE_CHECKING, Final

from slurmplugins import planner
from slurmplugins.actions import Terminate
from slurmplugins.errors import CloudError, EngineError, SlurmError, StateError
from slurmplugins.journal import SETTLE_SECONDS
from slurmplugins.launcher import Launcher
from slurmplugins.model import EndCause, Failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.model import Assignment, Claims, Instance, JobAsk
    from slurmplugins.names import NodeName
    from slurmplugins.planner import ResumePlan
    from slurmplugins.runtime import Engine

BUDGET_SHARE: Final = 0.5
"""Share of ResumeTimeout spent on finding capacity; the rest is for booting."""

ASSIGN_BATCH: Final = 100
"""Assignments that are told to Slurm in one go, across jobs."""

READ_TRIES: Final = 4

LIST_SECONDS: Final = SETTLE_SECONDS / 2
"""A list older than this, when its turn to plan has come, is read anew: machines launched since
would be neither in it nor among the journal's recent ones.
"""


def resume(engine: Engine, asks: Sequence[JobAsk]) -> None:
    """Give every node a machine, or give the node back to Slurm. Safe to repeat and to overlap."""
    with engine.journal.run() as run:
        log = engine.log.bind(run=run)
        try:
            plan = _plan(engine, run, asks)
        except EngineError as error:
            code = error.code if isinstance(error, CloudError) else ""
            _give_back_all(engine, asks, Failure(None, (), error.slug, code, error.message))
            return
        log.info(
            "planned",
            jobs=len(asks),
            adopt=len(plan.adopt),
            launch=sum(len(ask.nodes) for job in plan.launches for ask in job.asks),
            replace=len(plan.replace),
            busy=plan.busy,
        )
        _carry_out(engine, run, plan)
        log.info("done")


def suspend(engine: Engine, nodes: Iterable[NodeName], cause: EndCause) -> None:
    """End the machines of nodes that Slurm has let go of. Raises when either world is unreadable:
    nothing is ended on half a view, and reconcile does it later.
    """
    wanted = [node for node in nodes if engine.config.pool_of(node) is not None]
    listed = engine.cloud.instances()
    states = {node.name: node for node in engine.slurm.nodes()}
    plan = planner.suspend(wanted, listed, states, cause)
    kept = sorted(set(wanted) - {item.instance.node for item in plan if item.instance.node})
    engine.log.info("planned", terminate=len(plan), without=kept)
    engine.executor.run(plan)


def _plan(engine: Engine, run: str, asks: Sequence[JobAsk]) -> ResumePlan:
    """Read the cloud, then plan and claim while no other run can claim."""
    plans: list[ResumePlan] = []
    for _ in range(READ_TRIES):
        listed, at = _listed(engine)

        def choose(
            claims: Claims, listed: Sequence[Instance] = listed, at: float = at
        ) -> Iterable[NodeName]:
            if engine.clock.monotonic() - at > LIST_SECONDS:
                return ()
            plans.append(planner.resume(asks, listed, claims, engine.config, engine.clock.now()))
            return plans[-1].claimed

        engine.journal.claim(run, choose)
        if plans:
            return plans[-1]
    raise StateError("the cloud's list was out of date each time it could be used")


def _listed(engine: Engine) -> tuple[tuple[Instance, ...], float]:
    """The machines, and the moment before which they were as listed."""
    for again in range(READ_TRIES):
        at = engine.clock.monotonic()
        try:
            return engine.cloud.instances(), at
        except CloudError as error:
            engine.log.warning("listing failed", code=error.code, message=error.message)
            if not error.retryable or again == READ_TRIES - 1:
                raise
            engine.clock.sleep(2.0**again)
    raise AssertionError("unreachable")


def _carry_out(engine: Engine, run: str, plan: ResumePlan) -> None:
    executor = engine.executor
    executor.give_back(plan.failures)
    executor.run(
        [Terminate(item, EndCause.ORPHAN, "left over from before") for item in plan.replace]
    )
    launcher = Launcher(
        cluster=engine.config.cluster,
        cloud=engine.cloud,
        journal=engine.journal,
        memory=engine.memory,
        clock=engine.clock,
        log=engine.log.bind(run=run),
        attempt=lambda: secrets.token_hex(12),
        jitter=random.random,
        budget=engine.config.resume_timeout * BUDGET_SHARE,
    )
    pending: list[Assignment] = list(plan.adopt)
    for job in plan.launches:
        result = launcher.launch(job, run)
        if isinstance(result, Failure):
            executor.give_back([result])
            continue
        pending += result
        if len(pending) >= ASSIGN_BATCH:
            _assign(engine, pending)
            pending = []
    _assign(engine, pending)


def _assign(engine: Engine, pending: Sequence[Assignment]) -> None:
    """Addresses and ids for Slurm. A courtesy: a node brings both when it registers."""
    if not pending:
        return
    try:
        engine.slurm.assign(pending)
    except SlurmError as error:
        engine.log.warning("assign failed", message=error.message)


def _give_back_all(engine: Engine, asks: Sequence[JobAsk], failure: Failure) -> None:
    """When nothing can be launched at all, jobs learn it now and not at ResumeTimeout."""
    engine.executor.give_back(
        [Failure(ask.job, ask.nodes, failure.slug, failure.code, failure.message) for ask in asks]
    )
