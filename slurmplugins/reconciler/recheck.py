"""What a pass of reconcile saw, and whether it still holds at the moment of acting on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.errors import SlurmError, StateError
from slurmplugins.model import hostlist
from slurmplugins.model.actions import Terminate
from slurmplugins.reconciler.pass_state import LastPass
from slurmplugins.slurm.node_queries import known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.actions import Action
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.node import Node
    from slurmplugins.reconciler.snapshot import Plan, Snapshot

VIEW_SECONDS: Final = 15.0
"""How old what Slurm said may be when it is acted on: the timer's period, so that a pass which was
held up for longer leaves its actions to the next, which sees better. It counts from the answer: a
slurmctld that takes long for one would else be left alone for as long as it does."""

SLOW: Final = "slurm-slow"
"""Why a pass leaves something to the next."""


class Agreement:
    """Which machines of a pass may end; each is written down before anything follows from it.

    Of nodes that Slurm has let go of: at once, where no run of resume has claimed them since the
    view. Of nodes that it wants: where the view still holds right before Slurm is told of the node,
    or else `at_last`. A node that has come up is not told anything, and must keep its machine.

    With a full disk nothing can be agreed on with resume, so nothing is ended; jobs still go back.
    """

    def __init__(self, engine: Engine, world: Snapshot, actions: Sequence[Action]) -> None:
        self._engine = engine
        self._world = world
        self._spoken_of = {item.node for item in actions if not isinstance(item, Terminate)}
        self._open = [item for item in actions if isinstance(item, Terminate)]
        self.ends: list[Terminate] = []
        sure = [item for item in self._open if not self._wanted(item)]
        if sure and not old(engine, world):
            self._agree(sure)

    def holding(self, nodes: Sequence[NodeName]) -> frozenset[NodeName]:
        """Those of the nodes of which the view still holds; their machines are agreed on."""
        found = holding(self._engine, self._world, nodes)
        self._agree([item for item in self._open if self._wanted(item) in found])
        return found

    def at_last(self) -> None:
        """Agree on machines of nodes of which Slurm is told nothing."""
        nodes = {name for item in self._open if (name := self._wanted(item))} - self._spoken_of
        if nodes:
            self.holding(hostlist.order(nodes))

    def _wanted(self, item: Terminate) -> NodeName | None:
        """The machine's node, where the view has it as one that Slurm has not let go of."""
        name = item.instance.node
        node = self._world.nodes.get(name or "")
        decided = item.instance.id in self._world.claims.ended
        return None if node is None or node.off or decided else name

    def _agree(self, ends: Sequence[Terminate]) -> None:
        named = {e.instance.node for e in ends if e.instance.node in self._world.nodes}
        off = {name for name in named if name is not None and self._world.nodes[name].off}
        for cause in {item.cause for item in ends}:
            wanted = [(e.instance.id, e.instance.node) for e in ends if e.cause is cause]
            try:
                kept = self._engine.journal.condemn_idle(wanted, cause, self._world.seen, off)
            except StateError as error:
                said = error.message
                self._engine.log.problem("nothing is ended", machines=len(wanted), message=said)
            else:
                self.ends += [item for item in ends if item.instance.id in kept]
        done = {item.instance.id for item in ends}
        self._open = [item for item in self._open if item.instance.id not in done]


def holding(engine: Engine, world: Snapshot, nodes: Sequence[NodeName]) -> frozenset[NodeName]:
    """The nodes of which the view still holds: no person has given them a reason since, none came
    up, is another machine, went off or is asked for again, no run has claimed them, and it is
    young. What a person said would be cleared, or be taken for ours.
    """
    if old(engine, world):
        return frozenset()
    try:
        now = known(engine.slurm, nodes)
        none: frozenset[NodeName] = frozenset()
        busy = none if world.blind else engine.journal.claims().worked_on(world.seen)
    except (SlurmError, StateError) as error:
        left = hostlist.compress(nodes)
        engine.log.warning("left to the next pass", nodes=left, message=error.message)
        return frozenset()
    return frozenset(name for name in now if _holds(world.nodes[name], now[name])) - busy


def _holds(before: Node, now: Node) -> bool:
    """Whether what was decided on a node as it was `before` is still right."""
    if not now.readable or (not now.ours and now.reason != before.reason):
        return False
    came_up = _works(now) and not _works(before)
    return now.off == before.off and now.instance_id == before.instance_id and not came_up


def _works(node: Node) -> bool:
    return node.up and not node.invalid


def old(engine: Engine, world: Snapshot) -> bool:
    age = engine.clock.monotonic() - world.answered
    if age > VIEW_SECONDS:
        engine.log.warning("left to the next pass", code=SLOW, seconds=round(age))
    return age > VIEW_SECONDS


def tell_late(engine: Engine, world: Snapshot, plan: Plan) -> None:
    age = engine.clock.monotonic() - world.answered
    note = f"{SLOW}: before all was done, what Slurm had said was {age:.0f} s old"
    LastPass(world.now, note, plan.remarks).save(engine.state)
    engine.log.warning("held back", note=note)
