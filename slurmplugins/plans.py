"""How a run of resume comes to its plan: claim, settle doubts, read the cloud and Slurm, plan.

What is needed only once the cloud has been read is imported then, so that it is read sooner.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurmplugins import awaiting, fates, inventory
from slurmplugins.errors import SlurmError, SlurmUnreachable, StateError
from slurmplugins.model import Failure
from slurmplugins.policy import Preference
from slurmplugins.slurm import known

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from slurmplugins.claims import Claims
    from slurmplugins.model import JobAsk, Node
    from slurmplugins.names import NodeName
    from slurmplugins.planner import ResumePlan
    from slurmplugins.runtime import Engine

LIST_TRIES: Final = 4

SETTLING_WAIT: Final = 60.0
"""How long a run waits for nodes that another holds only to ask about an earlier launch."""

SETTLING_PAUSE: Final = 1.0


def claim(engine: Engine, run: str, asks: Sequence[JobAsk]) -> frozenset[NodeName]:
    """Claim the nodes that are asked for, but those another run is at; and wait, but not for ever,
    for those that it does not want itself.
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


def release(engine: Engine, run: str, nodes: Collection[NodeName]) -> None:
    """Safe to miss: claims end with their run."""
    try:
        if nodes:
            engine.journal.release(run, nodes)
    except StateError as error:
        engine.log.problem("journal", message=error.message)


def make(
    engine: Engine, run: str, asks: Sequence[JobAsk], mine: frozenset[NodeName], deadline: float
) -> ResumePlan:
    """What to do for the nodes that Slurm waits for, all of them claimed. Of a request of which one
    part gets nothing, no part gets anything.
    """
    waited = _waited(engine, asks)
    _settle_doubts(engine, run, mine, deadline)
    from slurmplugins import planner

    plan, asks = _first(engine, run, asks, waited)
    seen: dict[NodeName, Node] = {}
    failures: list[Failure] = []
    gone: list[JobAsk] = []
    silent = False
    while True:
        silent = silent or not _looked(engine, plan, seen)
        found, lost = _sparing(asks, plan) if silent else planner.awaited(asks, plan, seen)
        refused = fates.entangled(asks, plan.failures)
        failed = fates.of_failures(asks, [*lost, *refused])
        left = fates.without(found, failed)
        if left == tuple(asks):
            break
        out = [ask for ask in asks if fates.request_of(ask) in failed]
        kept = {node for ask in (*left, *out) for node in ask.nodes}
        release(engine, run, [node for ask in asks for node in ask.nodes if node not in kept])
        asks, gone, failures = left, [*gone, *out], [*failures, *lost, *refused]
        plan = _planned(engine, run, asks, waited)
    return replace(plan, failures=(*failures, *plan.failures), asks=(*asks, *gone))


def _first(
    engine: Engine, run: str, asks: Sequence[JobAsk], waited: Mapping[int, float]
) -> tuple[ResumePlan, Sequence[JobAsk]]:
    """Plan once, and beside it ask slurmctld which of the jobs are components of one het job."""
    het_jobs: dict[int, int] = {}
    with engine.crew.aside(urgent=True) as beside:
        if fates.suspects(asks):
            beside(lambda: het_jobs.update(_het_jobs(engine)))
        plan = _planned(engine, run, asks, waited)
    return plan, fates.linked(asks, het_jobs)


def _het_jobs(engine: Engine) -> Mapping[int, int]:
    """Where slurmctld does not answer, each component counts as a job of its own."""
    try:
        return engine.slurm.het_jobs()
    except SlurmError as error:
        engine.log.warning("het jobs unread", message=error.message)
        return {}


def _planned(
    engine: Engine, run: str, asks: Sequence[JobAsk], waited: Mapping[int, float]
) -> ResumePlan:
    for _ in range(LIST_TRIES):
        if (plan := _tried(engine, run, asks, waited)) is not None:
            return plan
    raise StateError("the cloud's list was out of date each time it could be used")


def _tried(
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


def _looked(engine: Engine, plan: ResumePlan, seen: dict[NodeName, Node]) -> bool:
    """Read into `seen` what Slurm has the plan's nodes as. False where it can't be asked and is
    believed: it asked for them a moment ago, and a slurmctld that restarts waits for them still.

    That is not enough to end a machine for: where one is to be replaced, it is asked again.
    """
    new = [node for node in plan.named if node not in seen]
    tries = awaiting.READ_TRIES if plan.replace else 1
    found = awaiting.patiently(engine.clock, engine.log, lambda: known(engine.slurm, new), tries)
    seen |= found or {}
    return found is not None


def _sparing(asks: Sequence[JobAsk], plan: ResumePlan) -> tuple[list[JobAsk], list[Failure]]:
    """The asks for which no machine is to be replaced; the others get nothing."""
    stale = {item.node for item in plan.replace}
    left: list[JobAsk] = []
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
    from slurmplugins import doubts

    doubts.settle(engine, run, mine, deadline)


def _waited(engine: Engine, asks: Sequence[JobAsk]) -> Mapping[int, float]:
    """How long the jobs have waited, where a policy wants to know."""
    policies = engine.config.policies.values()
    if not any(item.preference is Preference.ON_DEMAND_AFTER for item in policies):
        return {}
    from slurmplugins import waits

    return waits.read(engine, [ask.job for ask in asks if ask.job is not None])
