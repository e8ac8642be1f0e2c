"""Check, right before acting, that a pass's snapshot still holds."""

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
"""Seconds after Slurm's answer in which a pass may act on it. This is the timer's period: a pass
that was held up for longer leaves its actions to the next one, which sees better. The time counts
from the answer. A slurmctld that is slow to answer would otherwise be left alone for as long."""

SLOW: Final = "slurm-slow"
"""Reason code of a pass that leaves actions to the next one."""


class Agreement:
    """Agrees with resume on the instances of a pass that may be terminated.

    Each is journaled before anything follows from it. There are three cases.

    - Slurm has powered the node down: at once, if no run of resume has claimed it since the
      snapshot.
    - Slurm wants the node, and is told about it: right before that, if the snapshot still holds.
    - Slurm wants the node, and is told nothing about it: in `at_last`, if the snapshot still holds.

    A node that has come up is told nothing, and must keep its instance.

    With a full disk nothing can be agreed on with resume. So nothing is terminated, but jobs are
    still requeued.
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
        """Return the nodes for which the snapshot still holds.

        Their terminations are agreed on now.
        """
        found = holding(self._engine, self._world, nodes)
        self._agree([item for item in self._open if self._wanted(item) in found])
        return found

    def at_last(self) -> None:
        """Agree on the remaining instances, of nodes without another action."""
        nodes = {name for item in self._open if (name := self._wanted(item))} - self._spoken_of
        if nodes:
            self.holding(hostlist.order(nodes))

    def _wanted(self, item: Terminate) -> NodeName | None:
        """Return the instance's node if Slurm wants that node up.

        None for every other instance, and where the end was decided before.
        """
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
    """Return the nodes for which the snapshot still holds.

    It no longer holds if any of these is true:

    - The snapshot is older than VIEW_SECONDS.
    - A person has given the node a reason since. It would be cleared, or taken for ours.
    - The node came up, went off, was asked for again, or has another instance.
    - A run has claimed it.
    - Slurm or the journal can't be read.
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
    """Return whether a decision on the earlier record is still right."""
    if not now.readable or (not now.ours and now.reason != before.reason):
        return False
    came_up = _works(now) and not _works(before)
    return now.off == before.off and now.instance_id == before.instance_id and not came_up


def _works(node: Node) -> bool:
    return node.up and not node.invalid


def old(engine: Engine, world: Snapshot) -> bool:
    """Return whether Slurm's answer is too old to act on; log it."""
    age = engine.clock.monotonic() - world.answered
    if age > VIEW_SECONDS:
        engine.log.warning("left to the next pass", code=SLOW, seconds=round(age))
    return age > VIEW_SECONDS


def tell_late(engine: Engine, world: Snapshot, plan: Plan) -> None:
    """Record that this pass leaves actions to the next."""
    age = engine.clock.monotonic() - world.answered
    note = f"{SLOW}: before all was done, what Slurm had said was {age:.0f} s old"
    LastPass(world.now, note, plan.remarks).save(engine.state)
    engine.log.warning("held back", note=note)
