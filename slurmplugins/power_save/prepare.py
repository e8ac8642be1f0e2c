"""Prepare the plan of a resume run: claim, resolve earlier launches, read EC2 and Slurm, plan.

Modules that are needed only after EC2 was read are imported then, so that it is read sooner.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import CloudError, SlurmError, SlurmUnreachable, StateError
from slurmplugins.launch import all_or_nothing
from slurmplugins.model.launch import Failure
from slurmplugins.model.offering import Preference
from slurmplugins.slurm import node_queries
from slurmplugins.slurm.node_queries import known
from slurmplugins.state.journal import SETTLE_SECONDS
from slurmplugins.state.queue_time import Waits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.launch import JobRequest, ResumePlan
    from slurmplugins.model.node import Node
    from slurmplugins.state.journal_view import JournalView


LIST_TRIES: Final = 4
"""Plans that are tried until one is made from a fresh list."""

SETTLING_WAIT: Final = 60.0
"""Seconds that a run waits for nodes that another run holds only to ask about an earlier launch."""

SETTLING_PAUSE: Final = 1.0

LIST_CALL_TRIES: Final = 4
"""Tries of one DescribeInstances."""

FRESH_SECONDS: Final = SETTLE_SECONDS / 2
"""Age of a list at its turn to plan, after which it is read anew. Instances launched since would
otherwise be neither in it nor among the journal's recent ones."""


def claim(engine: Engine, run: str, asks: Sequence[JobRequest]) -> frozenset[NodeName]:
    """Claim the requested nodes that no other run works on.

    Another run may hold nodes only to ask about an earlier launch. This waits for those, up to
    SETTLING_WAIT seconds. Returns the claimed nodes. Raises StateError.
    """
    wanted = [node for ask in asks for node in ask.nodes]
    until = engine.clock.monotonic() + SETTLING_WAIT
    settling: set[NodeName] = set()

    def choose(claims: JournalView) -> Iterable[NodeName]:
        settling.clear()
        settling.update(claims.settling.intersection(wanted))
        return [node for node in wanted if node not in claims.busy]

    while True:
        mine = engine.journal.claim(run, choose)
        if not settling or engine.clock.monotonic() >= until:
            return frozenset(mine)
        engine.clock.sleep(SETTLING_PAUSE)


def release(engine: Engine, run: str, nodes: Collection[NodeName]) -> None:
    """Release claims; safe to miss, since claims end with their run."""
    try:
        if nodes:
            engine.journal.release(run, nodes)
    except StateError as error:
        engine.log.problem("journal", message=error.message)


def make(
    engine: Engine, run: str, asks: Sequence[JobRequest], mine: frozenset[NodeName], deadline: float
) -> ResumePlan:
    """Plan for the nodes that Slurm waits for and that are claimed.

    A request gets everything or nothing: if one part of it gets nothing, no part gets anything.
    Raises CloudError or StateError.
    """
    waited = _waited(engine, asks)
    _settle_doubts(engine, run, mine, deadline)
    from slurmplugins.power_save import planner

    plan, asks = _first(engine, run, asks, waited)
    seen: dict[NodeName, Node] = {}
    failures: list[Failure] = []
    gone: list[JobRequest] = []
    silent = False
    while True:
        silent = silent or not _looked(engine, plan, seen)
        found, lost = _sparing(asks, plan) if silent else planner.awaited(asks, plan, seen)
        refused = all_or_nothing.entangled(asks, plan.failures)
        failed = all_or_nothing.of_failures(asks, [*lost, *refused])
        left = all_or_nothing.without(found, failed)
        if left == tuple(asks):
            break
        out = [ask for ask in asks if all_or_nothing.request_of(ask) in failed]
        kept = {node for ask in (*left, *out) for node in ask.nodes}
        release(engine, run, [node for ask in asks for node in ask.nodes if node not in kept])
        asks, gone, failures = left, [*gone, *out], [*failures, *lost, *refused]
        plan = _planned(engine, run, asks, waited)
    return replace(plan, failures=(*failures, *plan.failures), asks=(*asks, *gone))


def _first(
    engine: Engine, run: str, asks: Sequence[JobRequest], waited: Mapping[int, float]
) -> tuple[ResumePlan, Sequence[JobRequest]]:
    """Plan once, and ask slurmctld for het jobs at the same time.

    It says which of the jobs are components of one het job.
    """
    het_jobs: dict[int, int] = {}
    with engine.crew.aside(urgent=True) as beside:
        if all_or_nothing.suspects(asks):
            beside(lambda: het_jobs.update(_het_jobs(engine)))
        plan = _planned(engine, run, asks, waited)
    return plan, all_or_nothing.linked(asks, het_jobs)


def _het_jobs(engine: Engine) -> Mapping[int, int]:
    """Map components to their het jobs; empty if slurmctld is silent.

    Each component then counts as a job of its own.
    """
    try:
        return engine.slurm.het_jobs()
    except SlurmError as error:
        engine.log.warning("het jobs unread", message=error.message)
        return {}


def _planned(
    engine: Engine, run: str, asks: Sequence[JobRequest], waited: Mapping[int, float]
) -> ResumePlan:
    for _ in range(LIST_TRIES):
        if (plan := _tried(engine, run, asks, waited)) is not None:
            return plan
    raise StateError("the cloud's list was out of date each time it could be used")


def _tried(
    engine: Engine, run: str, asks: Sequence[JobRequest], waited: Mapping[int, float]
) -> ResumePlan | None:
    """Read EC2, then plan and claim under the journal's lock.

    No other run can claim between the plan and the claim. Returns None where the list was too old
    by then.
    """
    listed, at = list_instances(engine)
    from slurmplugins.power_save import planner

    plans: list[ResumePlan] = []

    def choose(claims: JournalView) -> Iterable[NodeName]:
        if engine.clock.monotonic() - at > FRESH_SECONDS:
            return ()
        now = engine.clock.now()
        plans.append(planner.resume(asks, listed, claims, engine.config, now, waited=waited))
        return plans[-1].claimed

    engine.journal.claim(run, choose)
    return plans[-1] if plans else None


def _looked(engine: Engine, plan: ResumePlan, seen: dict[NodeName, Node]) -> bool:
    """Read the plan's nodes from Slurm into `seen`.

    Returns False when Slurm can't be asked. Its request is then believed: it is a moment old, and a
    slurmctld that restarts still waits for the nodes. That is not enough to terminate an instance.
    So Slurm is asked more often if the plan replaces one.
    """
    new = [node for node in plan.named if node not in seen]
    tries = node_queries.READ_TRIES if plan.replace else 1
    found = node_queries.patiently(
        engine.clock, engine.log, lambda: known(engine.slurm, new), tries
    )
    seen |= found or {}
    return found is not None


def _sparing(
    asks: Sequence[JobRequest], plan: ResumePlan
) -> tuple[list[JobRequest], list[Failure]]:
    """Keep the asks that replace no instance; fail the others."""
    stale = {item.node for item in plan.replace}
    left: list[JobRequest] = []
    lost: list[Failure] = []
    for ask in asks:
        if (old := next((node for node in ask.nodes if node in stale), None)) is None:
            left.append(ask)
        else:
            text = f"{old} has a machine from before, and Slurm does not say if that is at work"
            lost.append(Failure(ask.job, ask.nodes, SlurmUnreachable.slug, message=text))
    return left, lost


def _settle_doubts(engine: Engine, run: str, mine: frozenset[NodeName], deadline: float) -> None:
    if engine.journal.claims().doubtful.isdisjoint(mine):
        return
    from slurmplugins.launch import unresolved

    unresolved.settle(engine, run, mine, deadline)


def _waited(engine: Engine, asks: Sequence[JobRequest]) -> Mapping[int, float]:
    """Return the jobs' time in the queue, if a policy needs it."""
    policies = engine.config.policies.values()
    if not any(item.preference is Preference.ON_DEMAND_AFTER for item in policies):
        return {}
    return queue_times(engine, [ask.job for ask in asks if ask.job is not None])


def list_instances(engine: Engine) -> tuple[tuple[Instance, ...], float]:
    """List the instances, with retries.

    Returns them, and the monotonic time just before the call: they are at least as new. Raises
    CloudError.
    """
    for again in range(LIST_CALL_TRIES):
        at = engine.clock.monotonic()
        try:
            return engine.cloud.instances(), at
        except CloudError as error:
            engine.log.warning("listing failed", code=error.code, message=error.message)
            if not error.retryable or again == LIST_CALL_TRIES - 1:
                raise
            from random import random

            engine.clock.sleep(2.0**again * (0.5 + random()))  # noqa: S311 - no secret
    raise AssertionError("unreachable")


def queue_times(engine: Engine, jobs: Sequence[int]) -> Mapping[int, float]:
    """Return the jobs' seconds in the queue.

    Slurm's submit times are used where it answers.
    """
    try:
        submitted = {job.id: job.submitted_at for job in engine.slurm.jobs()}
    except SlurmError as error:
        engine.log.warning("jobs unread", message=error.message)
        submitted = {}
    return Waits(engine.state / "waits.json", engine.clock).of(jobs, submitted)
