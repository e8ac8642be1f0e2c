"""What the launches of one run have started, by node; some of it has ended again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import TYPE_CHECKING

from slurmplugins.errors import CloudError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from slurmplugins.errors import EngineError
    from slurmplugins.model import LaunchRequest
    from slurmplugins.names import NodeName


@dataclass(frozen=True, slots=True)
class Starts:
    """`sure`: instances by node. `unanswered`: by attempt, the nodes of launches without an answer.

    Safe between threads: each node is at one of them at a time.
    """

    sure: Counter[NodeName] = field(default_factory=Counter)
    unanswered: dict[str, Sequence[NodeName]] = field(default_factory=dict)

    def failed(self, request: LaunchRequest, error: EngineError, *, silent: bool) -> None:
        """Count a launch that failed; `silent`: one of its calls got no answer."""
        if isinstance(error, CloudError) and error.started:
            self.sure.update(islice(cycle(request.nodes), error.started))
        elif silent and not (isinstance(error, CloudError) and error.settles):
            self.unanswered[request.attempt] = request.nodes

    def of(self, nodes: Collection[NodeName]) -> int:
        """Count what was surely started for these nodes."""
        return sum(self.sure.get(node, 0) for node in nodes)

    def doubtful(self, nodes: Collection[NodeName]) -> Mapping[str, int]:
        """Count by attempt what may have been started for these nodes."""
        mine = frozenset(nodes)
        counts = {
            attempt: len(mine.intersection(asked))
            for attempt, asked in list(self.unanswered.items())
        }
        return {attempt: count for attempt, count in counts.items() if count}
