"""Resolve launches with an unknown outcome: their run was killed, or EC2 did not answer.

Repeating a request with the same ClientToken returns the instances of the first call, or launches
them now. It is repeated only while Slurm waits for every node of the launch. Otherwise it could
start instances that no node needs, and that are too old for the node's next job.

An inconclusive answer does not extend the window of doubt. It ends with time, however often EC2 is
asked.
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
    """Ask again about unresolved launches of wanted nodes; journal the answers.

    A launch is asked about only while Slurm waits for all its nodes. The run has claimed `wanted`.
    It claims a launch's other nodes only for the time of the question. Nothing is asked after
    `latest`, by the monotonic clock.

    A launch may stay unresolved. Nothing is launched for its nodes until its last unanswered call
    is too old to matter. Raises StateError when the journal can't be used.
    """
    log, journal = engine.log.bind(run=run), engine.journal
    mine: list[LaunchRequest] = []

    def choose(claims: JournalView) -> Iterable[NodeName]:
        """Return the launches' other nodes, to be claimed meanwhile.

        A launch is skipped if another run works on one of its nodes.
        """
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
    """Keep the requests that Slurm waits for with all their nodes.

    Empty when Slurm can't be asked.
    """
    nodes = [node for request in requests for node in request.nodes]
    try:
        waiting = awaited(engine.slurm, nodes) if nodes else frozenset()
    except SlurmError as error:
        engine.log.warning("nodes unread", message=error.message)
        return []
    return [request for request in requests if waiting.issuperset(request.nodes)]
