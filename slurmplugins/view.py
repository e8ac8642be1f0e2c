"""What a pass of reconcile saw, and whether it still holds at the moment of acting on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins import names
from slurmplugins.actions import Terminate
from slurmplugins.errors import SlurmError, StateError
from slurmplugins.memory import LastPass
from slurmplugins.slurm import known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.actions import Action
    from slurmplugins.model import Node
    from slurmplugins.names import NodeName
    from slurmplugins.runtime import Engine
    from slurmplugins.world import Plan, World

VIEW_SECONDS: Final = 15.0
"""How old what Slurm said may be when it is acted on: the timer's period, so that a pass which was
held up for longer leaves its actions to the next, which sees better. It counts from the answer: a
slurmctld that takes long for one would else be left alone for as long as it does."""

SLOW: Final = "slurm-slow"
"""Why a pass leaves something to the next."""


def agreed(engine: Engine, world: World, actions: Sequence[Action]) -> list[Terminate]:
    """The machines that may end: of nodes which no run of resume has claimed since the view.

    With a full disk nothing can be agreed on with resume, so nothing is ended; jobs still go back.
    """
    ends = [item for item in actions if isinstance(item, Terminate)]
    kept: set[str] = set()
    if not ends or old(engine, world):
        return []
    for cause in {item.cause for item in ends}:
        wanted = [(e.instance.id, e.instance.node) for e in ends if e.cause is cause]
        try:
            kept |= engine.journal.condemn_idle(wanted, cause, world.seen)
        except StateError as error:
            engine.log.problem("nothing is ended", machines=len(wanted), message=error.message)
    return [item for item in ends if item.instance.id in kept]


def holding(engine: Engine, world: World, nodes: Sequence[NodeName]) -> frozenset[NodeName]:
    """The nodes of which the view still holds: no person has given them a reason since, none came
    up, went off or is asked for again, no run has claimed them, and it is young. What a person said
    would be cleared, or be taken for ours.
    """
    if old(engine, world):
        return frozenset()
    try:
        now = known(engine.slurm, nodes)
        busy = engine.journal.claims().worked_on(world.seen)
    except (SlurmError, StateError) as error:
        left = names.compress(nodes)
        engine.log.warning("left to the next pass", nodes=left, message=error.message)
        return frozenset()
    return frozenset(name for name in now if _holds(world.nodes[name], now[name])) - busy


def _holds(before: Node, now: Node) -> bool:
    """Whether what was decided on a node as it was `before` is still right."""
    if not now.ours and now.reason != before.reason:
        return False
    came_up = now.up and not before.up
    return now.off == before.off and not came_up


def old(engine: Engine, world: World) -> bool:
    age = engine.clock.monotonic() - world.answered
    if age > VIEW_SECONDS:
        engine.log.warning("left to the next pass", code=SLOW, seconds=round(age))
    return age > VIEW_SECONDS


def tell_late(engine: Engine, world: World, plan: Plan) -> None:
    age = engine.clock.monotonic() - world.answered
    note = f"{SLOW}: before all was done, what Slurm had said was {age:.0f} s old"
    LastPass(world.now, note, plan.remarks).save(engine.state)
    engine.log.warning("held back", note=note)
