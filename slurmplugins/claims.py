"""What the journal says about nodes and machines: who works on what, and what is in doubt."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from slurmplugins.model import Assignment, EndCause, Instance, LaunchRequest
    from slurmplugins.names import NodeName


@dataclass(frozen=True, slots=True)
class Claims:
    """The journal at one moment.

    `busy`: nodes a live run of resume is at; `settling`: those of them that it does not want, and
    is about to let go of. `doubtful`: nodes of recent launches whose outcome no live run is about
    to know; `open`: those launches. `asked`: the attempts whose outcome a live run is about to
    know. `launched`: machines launched so recently that the cloud may not list them yet; `ending`:
    those launched as recently that we have decided to end. `ended`:
    machines we have decided to end, and why. `let_go`: machines that Slurm has powered their node
    down with. `former`: names that machines had before. `claimed`: when a node was last claimed, by
    the steady clock, if that was lately; its run may be over. `strange`: machines that lines name
    which nobody here understands: they are not handed out, and not ended while Slurm wants their
    node; `riddles`: those of them that are named so lately that they are not ended at all. `born`:
    when machines were launched, and `at`: when this was read, both in the time of `steady`.
    """

    busy: frozenset[NodeName] = frozenset()
    settling: frozenset[NodeName] = frozenset()
    doubtful: frozenset[NodeName] = frozenset()
    open: tuple[LaunchRequest, ...] = ()
    asked: frozenset[str] = frozenset()
    launched: Mapping[str, Assignment] = field(default_factory=dict)
    ended: Mapping[str, EndCause] = field(default_factory=dict)
    let_go: frozenset[str] = frozenset()
    ending: Mapping[str, Assignment] = field(default_factory=dict)
    former: Mapping[str, Collection[NodeName]] = field(default_factory=dict)
    claimed: Mapping[NodeName, float] = field(default_factory=dict)
    strange: frozenset[str] = frozenset()
    riddles: frozenset[str] = frozenset()
    born: Mapping[str, float] = field(default_factory=dict)
    at: float = 0.0

    def age(self, machine: Instance, now: float) -> float:
        """Tell how old the machine is: by `now`, the head's clock, only where nobody wrote it down.
        The head's clock and EC2's may differ.
        """
        born = self.born.get(machine.id, math.inf)
        return self.at - born if born <= self.at else now - machine.launched_at

    def named(self, listed: Iterable[Instance]) -> tuple[Instance, ...]:
        """The machines under the names they were given last. A list read before these claims may
        have an older one, and tags are eventually consistent in EC2.
        """
        return tuple(
            item
            if (node := self.name(item.id, item.node)) == item.node
            else replace(item, node=node)
            for item in listed
        )

    def name(self, instance_id: str, listed: NodeName | None) -> NodeName | None:
        """Which node a machine is that is listed as one. Only a former name is corrected: one that
        the journal does not know was given by a run that died before it could say so.
        """
        told = self.launched.get(instance_id)
        if told is None or not (listed is None or listed in self.former.get(instance_id, ())):
            return listed
        return told.node

    def worked_on(self, since: float) -> frozenset[NodeName]:
        """Nodes a run has been at since then, or is at now: what was seen before may be untrue."""
        return self.busy.union(node for node, at in self.claimed.items() if at > since)
