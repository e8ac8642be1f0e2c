"""What resume, suspend and resume_fail do, given the engine's parts: read, plan, execute.

What is needed only once the cloud has been read is imported then, so that it is read sooner.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurmplugins import inventory, names
from slurmplugins.errors import CloudError, EngineError, SlurmError, StateError
from slurmplugins.model import EndCause, Failure
from slurmplugins.policy import Preference
from slurmplugins.slurm import awaited, known

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from slurmplugins.claims import Claims
    from slurmplugins.launcher import Results
    from slurmplugins.model import Assignment, JobAsk
    from slurmplugins.names import NodeName
    from slurmplugins.planner import ResumePlan
    from slurmplugins.runtime import Engine

BUDGET_SHARE: Final = 0.5
"""Share of ResumeTimeout spent on finding capacity; the rest is for booting."""

PLAN_TRIES: Final = 4

SETTLING_WAIT: Final = 60.0
"""How long a run waits for nodes that another holds only to ask about an earlier launch."""

SETTLING_PAUSE: Final = 1.0

BUG: Final = "bug"
"""Why nodes are given back when it is our own code that failed."""


def resume(engine: Engine, asks: Sequence[JobAsk]) -> None:
    """Give every node a machine, or give the node back to Slurm. Safe to repeat and to overlap.

    What is no EngineError is raised again, once the nodes it left undecided are given back.
    """
    decided: set[NodeName] = set()
    until = engine.clock.monotonic() + engine.config.resume_timeout * BUDGET_SHARE
    try:
        with engine.journal.run() as run:
            # First of all: reconcile gives nodes back that nobody has claimed for a while.
            mine = _claim(engine, run, asks)
            plan = _screened(engine, _plan(engine, run, asks, mine))
            engine.log.info(
                "planned",
                run=run,
                jobs=len(asks),
                adopt=len(plan.adopt),
                launch=sum(len(ask.nodes) for job in plan.launches for ask in job.asks),
                replace=len(plan.replace),
                busy=names.compress(plan.busy),
            )
            _carry_out(engine, run, plan, decided, until)
            engine.log.info("done", run=run)
    except EngineError as error:  # before anything was launched: what comes later has its own
        code = error.code if isinstance(error, CloudError) else ""
        hold = isinstance(error, CloudError) and error.holds
        _give_back_all(engine, asks, Failure(None, (), error.slug, code, error.message, hold))
    except Exception as error:
        # Machines that were started for these nodes end with them, by suspend.
        left = [ask for ask in asks if not decided.issuperset(ask.nodes)]
        text = f"{type(error).__name__}: {error}"
        _give_back_all(engine, left, Failure(None, (), BUG, message=text))
        raise


def suspend(engine: Engine, nodes: Iterable[NodeName], cause: EndCause) -> None:
    """End the machines of nodes that Slurm has let go of. Raises when either world is unreadable:
    nothing is ended on half a view, and reconcile does it later. So it does with the machine of a
    node that a live run of resume has claimed: that run may have given it to another node by now.
    """
    from slurmplugins import planner

    wanted = [node for node in nodes if engine.config.pool_of(node) is not None]
    _let_go(engine, wanted)
    listed, _ = inventory.read(engine)
    seen = engine.clock.monotonic()
    states = {node.name: node for node in engine.slurm.nodes()}
    plan = planner.suspend(wanted, engine.journal.claims().named(listed), states, cause)
    machines = [(item.instance.id, item.instance.node) for item in plan]
    try:
        kept = engine.journal.condemn_idle(machines, cause, seen)
        plan = tuple(item for item in plan if item.instance.id in kept)
    except StateError as error:  # no run can claim a node then; the money matters more
        engine.log.problem("journal", message=error.message)
    without = set(wanted) - {item.instance.node for item in plan if item.instance.node}
    engine.log.info("planned", terminate=len(plan), without=names.compress(without))
    engine.executor.run(plan)


def _let_go(engine: Engine, nodes: Sequence[NodeName]) -> None:
    """Write down which nodes are off, before anything that may fail or take long is asked for."""
    at = engine.clock.monotonic()
    try:
        off = [name for name, node in known(engine.slurm, nodes).items() if node.off]
        if off:
            engine.journal.let_go(off, at)
    except EngineError as error:  # what follows reads them again, and says what it could not do
        engine.log.warning("not written down", slug=error.slug, message=error.message)


def _claim(engine: Engine, run: str, asks: Sequence[JobAsk]) -> frozenset[NodeName]:
    """Claim the nodes that are asked for, but those another run is at; and wait for those that it
    does not want itself.
    """
    wanted = [node for ask in asks for node in ask.nodes]
    until = engine.clock.monotonic() + SETTLING_WAIT
    settling: set[NodeName] = set()

    def choose(claims: Claims) -> Iterable[NodeName]:
        settling.clear()
        settling.update(claims.settling.intersection(wanted))
        return [node for node in wanted if node not in claims.busy]

    while True:
        mine = engine.journal.claim(run, choose)
        if not settling or engine.clock.monotonic() >= until:
            return frozenset(mine)
        engine.clock.sleep(SETTLING_PAUSE)


def _release(engine: Engine, run: str, nodes: Collection[NodeName]) -> None:
    """Safe to miss: claims end with their run."""
    try:
        if nodes:
            engine.journal.release(run, nodes)
    except StateError as error:
        engine.log.problem("journal", message=error.message)


def _plan(
    engine: Engine, run: str, asks: Sequence[JobAsk], mine: frozenset[NodeName]
) -> ResumePlan:
    """What to do for the nodes that Slurm waits for, all of them claimed."""
    waited = _waited(engine, asks)
    _settle_doubts(engine, run, mine)
    for _ in range(PLAN_TRIES):
        plan = _planned(engine, run, asks, waited)
        if plan is None:
            continue
        others = _unwanted(engine, plan, mine)
        if not others:
            return plan
        _release(engine, run, others)
        asks = [replace(ask, nodes=tuple(n for n in ask.nodes if n not in others)) for ask in asks]
    raise StateError("the cloud's list was out of date each time it could be used")


def _planned(
    engine: Engine, run: str, asks: Sequence[JobAsk], waited: Mapping[int, float]
) -> ResumePlan | None:
    """Read the cloud, then plan and claim while no other run can claim; None where that took so
    long that the list is old.
    """
    listed, at = inventory.read(engine)
    from slurmplugins import planner

    plans: list[ResumePlan] = []

    def choose(claims: Claims) -> Iterable[NodeName]:
        if engine.clock.monotonic() - at > inventory.FRESH_SECONDS:
            return ()
        now = engine.clock.now()
        plans.append(planner.resume(asks, listed, claims, engine.config, now, waited=waited))
        return plans[-1].claimed

    engine.journal.claim(run, choose)
    return plans[-1] if plans else None


def _unwanted(engine: Engine, plan: ResumePlan, mine: frozenset[NodeName]) -> frozenset[NodeName]:
    """Nodes whose machine Slurm does not wait for any more: of those whose machine would be
    replaced, where it is in use, and of those another run was at, where that gave them back.
    """
    doubtful = [item.node for item in plan.replace if item.node is not None]
    doubtful += [node for node in plan.claimed if node not in mine]
    return frozenset(doubtful) - awaited(engine.slurm, doubtful) if doubtful else frozenset()


def _settle_doubts(engine: Engine, run: str, mine: frozenset[NodeName]) -> None:
    if engine.journal.claims().doubtful.isdisjoint(mine):
        return
    from slurmplugins import doubts

    doubts.settle(engine.cloud, engine.journal, run, mine, engine.log.bind(run=run))


def _screened(engine: Engine, plan: ResumePlan) -> ResumePlan:
    """The plan less the launches in pools whose machines do not come up: of such a job, nothing."""
    from slurmplugins import protection

    patience = engine.config.resume_timeout
    found = protection.gate(engine.state, plan.launches, engine.clock.now(), patience)
    stopped = [
        item.instance_id for job in plan.launches if job not in found.let for item in job.adopted
    ]
    failures = (*plan.failures, *found.refused)
    return replace(plan, launches=found.let, failures=failures).without(stopped)


def _carry_out(
    engine: Engine, run: str, plan: ResumePlan, decided: set[NodeName], until: float
) -> None:
    """`decided` gets the nodes that have a machine, are another run's or were given back. Nothing
    that is launched waits for what Slurm is told of other jobs.
    """
    crew = engine.crew
    with crew.aside(urgent=False) as of_jobs, crew.aside(urgent=True) as of_nodes:

        def tell_slurm(results: Results) -> None:
            decided.update(results.served)
            _assign(engine, results.assignments)
            told = engine.executor.give_back(results.failures, run)
            given_back = [node for failure in results.failures for node in failure.nodes]
            decided.update(given_back)
            _release(engine, run, [*results.served, *given_back])
            of_jobs(lambda: engine.executor.tell(told))

        decided.update(plan.busy)
        _launch(engine, run, plan, lambda found: of_nodes(lambda: tell_slurm(found)), until)


def _launch(
    engine: Engine, run: str, plan: ResumePlan, settled: Callable[[Results], None], until: float
) -> None:
    from random import random

    from slurmplugins.actions import Terminate
    from slurmplugins.launcher import Launcher, Results

    settled(Results(failures=plan.failures))
    engine.executor.run(
        [Terminate(item, EndCause.ORPHAN, "left over from before") for item in plan.replace]
    )
    launcher = Launcher(
        cluster=engine.config.cluster,
        cloud=engine.cloud,
        journal=engine.journal,
        memory=engine.memory,
        clock=engine.clock,
        log=engine.log.bind(run=run),
        attempt=lambda: os.urandom(12).hex(),
        jitter=random,
        budget=until - engine.clock.monotonic(),
        crew=engine.crew,
    )
    launcher.end(plan.surplus, run)
    undecided = {node for job in plan.launches for node in job.nodes}
    served = tuple(item.node for item in plan.adopt if item.node not in undecided)
    settled(Results(assignments=plan.adopt, served=served))
    launcher.launch(plan.launches, run, settled)


def _waited(engine: Engine, asks: Sequence[JobAsk]) -> Mapping[int, float]:
    """How long the jobs have waited, where a policy wants to know."""
    policies = engine.config.policies.values()
    if not any(item.preference is Preference.ON_DEMAND_AFTER for item in policies):
        return {}
    from slurmplugins import waits

    return waits.read(engine, [ask.job for ask in asks if ask.job is not None])


def _assign(engine: Engine, pending: Sequence[Assignment]) -> None:
    """Addresses and ids for Slurm. A courtesy: a node brings both when it registers."""
    known = [item for item in pending if item.address and item.type]
    if not known:
        return
    try:
        engine.slurm.assign(known)
    except SlurmError as error:
        engine.log.warning("assign failed", message=error.message)


def _give_back_all(engine: Engine, asks: Sequence[JobAsk], failure: Failure) -> None:
    """When nothing can be launched at all, jobs learn it now and not at ResumeTimeout."""
    failures = [replace(failure, job=ask.job, nodes=ask.nodes) for ask in asks]
    engine.executor.tell(engine.executor.give_back(failures))
