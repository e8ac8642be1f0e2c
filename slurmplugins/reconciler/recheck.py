"""Check, right before acting, that a pass's snapshot still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.errors import SlurmError, StateError
from slurmplugins.model import hostlist
from slurmplugins.model.actions import Terminate
from slurmplugins.reconciler.pass_state import LastPass
from slurmplugins.slurm.node_queries import known_nodes
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.actions import Action
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.node import Node
    from slurmplugins.reconciler.snapshot import Plan, Snapshot

SNAPSHOT_SECONDS: Final = 15.0
"""Seconds after Slurm's answer in which a pass may act on it. This is the timer's period: a pass
that was held up for longer leaves its actions to the next one, which sees better. The time counts
from the answer. A slurmctld that is slow to answer would otherwise be left alone for as long."""

SLURM_SLOW: Final = "slurm-slow"
"""Reason code of a pass that leaves actions to the next one."""


class TerminationGuard:
    """Agrees with resume on the instances of a pass that may be terminated.

    Each is journaled before anything follows from it. There are three cases.

    - Slurm has powered the node down: at once, if no ResumeProgram has claimed it since the
      snapshot.
    - Slurm wants the node, and the pass changes it: right before that, if the snapshot still holds.
    - Slurm wants the node, and the pass does not change it: in `check_rest`, if it still holds.

    A node that has come up is not changed, and must keep its instance.

    With a full disk nothing can be journaled. So no instance is terminated, but jobs are still
    requeued.
    """

    def __init__(self, engine: Engine, snapshot: Snapshot, actions: Sequence[Action]) -> None:
        self._engine = engine
        self._snapshot = snapshot
        self._unjudged = [item for item in actions if isinstance(item, Terminate)]
        self._nodes_with_actions = {a.node for a in actions if not isinstance(a, Terminate)}
        self.terminations: list[Terminate] = []
        unneeded = [item for item in self._unjudged if not self._wanted_node(item)]
        if unneeded and not is_too_old(engine, snapshot):
            self._journal_terminations(unneeded)

    def still_valid(self, nodes: Sequence[NodeName]) -> frozenset[NodeName]:
        """Return the nodes for which the snapshot still holds.

        Their terminations are agreed on now.
        """
        valid_nodes = still_valid(self._engine, self._snapshot, nodes)
        self._journal_terminations(
            [item for item in self._unjudged if self._wanted_node(item) in valid_nodes]
        )
        return valid_nodes

    def check_rest(self) -> None:
        """Agree on the remaining instances, of nodes without another action."""
        nodes = {name for item in self._unjudged if (name := self._wanted_node(item))}
        if nodes - self._nodes_with_actions:
            self.still_valid(hostlist.order(nodes - self._nodes_with_actions))

    def _wanted_node(self, item: Terminate) -> NodeName | None:
        """Return the instance's node if Slurm wants that node up.

        None for every other instance, and where the termination was decided before.
        """
        name = item.instance.node
        node = self._snapshot.nodes.get(name or "")
        already_decided = item.instance.id in self._snapshot.journal.termination_causes
        return None if node is None or node.powering_off or already_decided else name

    def _journal_terminations(self, terminations: Sequence[Terminate]) -> None:
        nodes = self._snapshot.nodes
        names = {item.instance.node for item in terminations}
        off = {n for n in names if n is not None and n in nodes and nodes[n].powering_off}
        for cause in {item.cause for item in terminations}:
            group = [item for item in terminations if item.cause is cause]
            instances = [(item.instance.id, item.instance.node) for item in group]
            try:
                journaled_ids = self._engine.journal.mark_terminating_if_idle(
                    instances, cause, self._snapshot.slurm_asked_at, off
                )
            except StateError as error:
                self._engine.log.failure(
                    LogEvent.TERMINATIONS_BLOCKED, instances=len(instances), message=error.message
                )
            else:
                self.terminations += [i for i in terminations if i.instance.id in journaled_ids]
        judged_ids = {item.instance.id for item in terminations}
        self._unjudged = [item for item in self._unjudged if item.instance.id not in judged_ids]


def still_valid(
    engine: Engine, snapshot: Snapshot, nodes: Sequence[NodeName]
) -> frozenset[NodeName]:
    """Return the nodes for which the snapshot still holds.

    It no longer holds if any of these is true:

    - The snapshot is older than SNAPSHOT_SECONDS.
    - A person has given the node a reason since. It would be cleared, or taken for ours.
    - The node came up, was powered down, was requested again, or has another instance.
    - A ResumeProgram has claimed it.
    - Slurm or the journal can't be read.
    """
    if is_too_old(engine, snapshot):
        return frozenset()
    claimed_nodes: frozenset[NodeName] = frozenset()
    try:
        current_nodes = known_nodes(engine.slurm, nodes)
        if not snapshot.journal_unreadable:
            claimed_nodes = engine.journal.view().claimed_since(snapshot.slurm_asked_at)
    except (SlurmError, StateError) as error:
        node_list = hostlist.compress(nodes)
        engine.log.warning(LogEvent.ACTIONS_POSTPONED, nodes=node_list, message=error.message)
        return frozenset()
    unchanged = {n for n, node in current_nodes.items() if _still_stands(snapshot.nodes[n], node)}
    return frozenset(unchanged - claimed_nodes)


def _still_stands(old_node: Node, new_node: Node) -> bool:
    """Return whether a decision on the earlier record is still right."""
    if not new_node.readable:
        return False
    if not new_node.reason_is_ours and new_node.reason != old_node.reason:
        return False
    if new_node.powering_off != old_node.powering_off:
        return False
    has_come_up = _is_working(new_node) and not _is_working(old_node)
    return new_node.instance_id == old_node.instance_id and not has_come_up


def _is_working(node: Node) -> bool:
    return node.up and not node.invalid


def is_too_old(engine: Engine, snapshot: Snapshot) -> bool:
    """Return whether Slurm's answer is too old to act on; log it."""
    age = engine.clock.monotonic() - snapshot.slurm_answered_at
    if age > SNAPSHOT_SECONDS:
        engine.log.warning(LogEvent.ACTIONS_POSTPONED, code=SLURM_SLOW, seconds=round(age))
    return age > SNAPSHOT_SECONDS


def record_late_pass(engine: Engine, snapshot: Snapshot, plan: Plan) -> None:
    """Record that this pass leaves actions to the next."""
    age = engine.clock.monotonic() - snapshot.slurm_answered_at
    blocked_by = f"{SLURM_SLOW}: Slurm's answer was {age:.0f} s old before all actions were done"
    LastPass(snapshot.now, blocked_by, plan.warnings).save(engine.state)
    engine.log.warning(LogEvent.ACTIONS_BLOCKED, note=blocked_by)
