"""How a run of resume comes to its plan: claim, settle doubts, read the cloud and Slurm, plan.

What is needed only once the cloud has been read is imported then, so that it is read sooner.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurmplugins import inventory
from slurmplugins.errors import SlurmError, StateError
from slurmplugins.policy import Preference
from slurmplugins.slurm import known

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from slurmplugins.claims import Claims
    from slurmplugins.model import Failure, JobAsk, Node
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
    """What to do for the nodes that Slurm waits for, all of them claimed."""
    waited = _waited(engine, asks)
    _settle_doubts(engine, run, mine, deadline)
    from slurmplugins import planner

    seen: dict[NodeName, Node] = {}
    failures: list[Failure] = []
    while True:
        plan = _planned(engine, run, asks, waited)
        if not _looked(engine, plan, seen):
            break
        left, lost = planner.awaited(asks, plan, seen)
        if left == list(asks):
            break
        kept = {node for ask in left for node in ask.nodes}
        kept.update(node for failure in lost for node in failure.nodes)
        release(engine, run, [node for ask in asks for node in ask.nodes if node not in kept])
        asks, failures = left, [*failures, *lost]
    return replace(plan, failures=(*failures, *plan.failures))


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

    That is not enough to end a machine for: SlurmError.
    """
    try:
        seen |= known(engine.slurm, [node for node in plan.named if node not in seen])
    except SlurmError as error:
        if plan.replace:
            raise
        engine.log.warning("nodes unread", message=error.message)
        return False
    return True


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
