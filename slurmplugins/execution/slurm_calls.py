"""Change nodes in Slurm with few calls; log each change and each failure."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from slurmplugins.errors import EngineError, SlurmRefused, SlurmUnreachable
from slurmplugins.model import hostlist
from slurmplugins.model.actions import (
    Drain,
    MarkDown,
    Outcome,
    PowerDown,
    PowerUp,
    Register,
    RequestStop,
    ReturnToService,
)
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Set as AbstractSet

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.system.logger import Log

_WithReason = MarkDown | Drain | RequestStop
_Reasoned = TypeVar("_Reasoned", MarkDown, Drain, RequestStop)
NodeAction = _WithReason | Register | PowerDown | ReturnToService | PowerUp


def all_nodes(nodes: Sequence[NodeName]) -> AbstractSet[NodeName]:
    return frozenset(nodes)


class SlurmCalls:
    """Calls that change nodes.

    `still_valid` is asked before each call. It returns the nodes for which the actions still hold;
    the other nodes are left alone. With `stop_if_unreachable`, the first call without an answer is
    the last one.
    """

    def __init__(
        self,
        slurm: Slurm,
        log: Log,
        still_valid: Callable[[Sequence[NodeName]], AbstractSet[NodeName]] = all_nodes,
        *,
        stop_if_unreachable: bool = False,
    ) -> None:
        self._slurm = slurm
        self._log = log
        self._still_valid = still_valid
        self._stop_if_unreachable = stop_if_unreachable
        self.reachable = True
        """slurmctld has answered each call."""

    def mark_down(self, actions: Iterable[object]) -> list[Outcome]:
        """Set the nodes of all MarkDown among the actions DOWN."""
        return self.run_by_reason(actions, MarkDown, self._slurm.down)

    def power_down(self, actions: Iterable[object]) -> list[Outcome]:
        """Power down the nodes of all PowerDown among the actions."""
        return self.run([a for a in actions if isinstance(a, PowerDown)], self._slurm.power_down)

    def run_by_reason(
        self,
        actions: Iterable[object],
        kind: type[_Reasoned],
        call: Callable[..., None],
    ) -> list[Outcome]:
        """Make one call for each reason among these actions."""
        groups: dict[str, list[_Reasoned]] = defaultdict(list)
        for action in actions:
            if isinstance(action, kind):
                groups[action.reason].append(action)
        return [
            outcome
            for reason, group in groups.items()
            for outcome in self.run(group, partial(call, reason=reason))
        ]

    def run(
        self, actions: Sequence[NodeAction], call: Callable[[Sequence[NodeName]], None]
    ) -> list[Outcome]:
        """Log the actions that still hold, and make one call for all.

        Many nodes share a line of the log. With a line each, thousands of nodes would push the past
        out of the decision log.
        """
        if self._stop_if_unreachable and not self.reachable:
            return []
        actions = self._valid(actions)
        nodes_by_why: dict[str, list[NodeName]] = defaultdict(list)
        for action in actions:
            why = action.reason if isinstance(action, _WithReason) else action.why
            nodes_by_why[why].append(action.node)
        for why, nodes in nodes_by_why.items():
            kind = type(actions[0]).__name__
            self._log.info(
                LogEvent.ACTION_APPLIED, action=kind, nodes=hostlist.compress(nodes), why=why
            )
        return self._call_by_halves(actions, call)

    def _call_by_halves(
        self, actions: Sequence[NodeAction], call: Callable[[Sequence[NodeName]], None]
    ) -> list[Outcome]:
        """Call Slurm for all nodes, and by halves where it refuses.

        Halving keeps one bad node from failing the others. A call without an answer is not halved:
        each half would wait as long and get none either.
        """
        if not actions:
            return []
        nodes = [action.node for action in actions]
        try:
            call(nodes)
        except EngineError as error:
            if isinstance(error, SlurmRefused) and len(actions) > 1:
                middle = len(actions) // 2
                halves = [self._valid(half) for half in (actions[:middle], actions[middle:])]
                return [item for half in halves for item in self._call_by_halves(half, call)]
            self.reachable = self.reachable and not isinstance(error, SlurmUnreachable)
            kind, message = type(actions[0]).__name__, error.message
            self._log.failure(
                LogEvent.ACTION_FAILED, action=kind, nodes=hostlist.compress(nodes), error=message
            )
            return [Outcome(action, message) for action in actions]
        return [Outcome(action) for action in actions]

    def _valid(self, actions: Sequence[NodeAction]) -> list[NodeAction]:
        nodes = self._still_valid([item.node for item in actions]) if actions else frozenset()
        return [item for item in actions if item.node in nodes]
