"""Launches whose outcome nobody knows: their run was killed, or EC2 did not answer.

The same request with the same token tells: EC2 answers with the machines it started then, or
starts them now. So it is made only while Slurm waits for all of its nodes: a machine of another
would be nobody's, and too old for the node's next job. An answer that tells nothing leaves the
doubt as old as it was: it ends with time, however often EC2 is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.errors import CloudError, Late, SlurmError
from slurmplugins.launch.launch_call import Attempt
from slurmplugins.model.instance import assignments
from slurmplugins.slurm.node_queries import awaited

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.launch import LaunchRequest
    from slurmplugins.state.journal_view import JournalView


def settle(engine: Engine, run: str, wanted: frozenset[NodeName], latest: float) -> None:
    """Ask again about each launch in doubt that has a wanted node, where Slurm waits for all of its
    nodes, and write down what it was. The run has claimed the wanted ones; the launches' other
    nodes it holds only meanwhile. Nothing is asked after `latest`, by the steady clock.

    What stays in doubt stays so; nothing is launched for its nodes until the last call that got no
    answer is too long ago to matter.
    StateError when the journal can't be used.
    """
    log, journal = engine.log.bind(run=run), engine.journal
    mine: list[LaunchRequest] = []

    def choose(claims: JournalView) -> Iterable[NodeName]:
        """The nodes of these launches, unless another run works on one of them."""
        for request in claims.open:
            if wanted.isdisjoint(request.nodes) or not claims.busy.isdisjoint(request.nodes):
                continue
            mine.append(request)
        return [node for request in mine for node in request.nodes if node not in wanted]

    foreign = journal.claim(run, choose, settling=True)

    def ask(request: LaunchRequest) -> None:
        try:
            attempt = Attempt(engine.cloud, journal, engine.clock, run, request, latest)
            launched = attempt.ask()
        except (CloudError, Late) as error:
            told = {"slug": error.slug, "message": error.message}
            log.warning("still in doubt", attempt=request.attempt, **told)
            return
        journal.launched(request.attempt, assignments(launched.machines))
        log.info("settled", attempt=request.attempt, machines=len(launched.machines))

    engine.crew.map(ask, _awaited(engine, mine))
    if foreign:
        journal.release(run, foreign)


def _awaited(engine: Engine, requests: Sequence[LaunchRequest]) -> list[LaunchRequest]:
    """Those for all of whose nodes Slurm waits; none where it can't be asked."""
    nodes = [node for request in requests for node in request.nodes]
    try:
        waiting = awaited(engine.slurm, nodes) if nodes else frozenset()
    except SlurmError as error:
        engine.log.warning("nodes unread", message=error.message)
        return []
    return [request for request in requests if waiting.issuperset(request.nodes)]
