"""What the journal says about nodes and machines: who works on what, and what is in doubt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from slurmplugins.model import Assignment, EndCause, Instance, LaunchRequest
    from slurmplugins.names import NodeName


@dataclass(frozen=True, slots=True)
class Claims:
    """The journal at one moment.

    `busy`: nodes a live run of resume is at; `settling`: those of them that it does not want, and
    is about to let go of. `doubtful`: nodes of recent launches whose outcome no live run is about
    to know; `open`: those launches. `asked`: the attempts whose outcome a live run is about to
    know. `launched`: machines launched so recently that the cloud may not list them yet. `ended`:
    machines we have decided to end, and why. `let_go`: machines that Slurm has powered their node
    down with. `claimed`: when a node was last claimed, by the steady clock, if that was lately; its
    run may be over.
    """

    busy: frozenset[NodeName] = frozenset()
    settling: frozenset[NodeName] = frozenset()
    doubtful: frozenset[NodeName] = frozenset()
    open: tuple[LaunchRequest, ...] = ()
    asked: frozenset[str] = frozenset()
    launched: Mapping[str, Assignment] = field(default_factory=dict)
    ended: Mapping[str, EndCause] = field(default_factory=dict)
    let_go: frozenset[str] = frozenset()
    claimed: Mapping[NodeName, float] = field(default_factory=dict)

    def named(self, listed: Iterable[Instance]) -> tuple[Instance, ...]:
        """The machines under the names they were given last. A list read before these claims may
        have an older one, and tags are eventually consistent in EC2.
        """
        return tuple(
            replace(item, node=self.launched[item.id].node) if item.id in self.launched else item
            for item in listed
        )

    def worked_on(self, since: float) -> frozenset[NodeName]:
        """Nodes a run has been at since then, or is at now: what was seen before may be untrue."""
        return self.busy.union(node for node, at in self.claimed.items() if at > since)
