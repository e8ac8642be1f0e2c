"""Resolve launches with an unknown outcome: their run was killed, or EC2 did not answer.

Repeating a request with the same ClientToken returns the instances of the first call, or launches
them now. It is repeated only while Slurm waits for every node of the launch. Otherwise it could
start instances that no node needs, and that are too old for the node's next job.

An inconclusive answer does not extend the window of doubt. It ends with time, however often EC2 is
asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.errors import CloudError, SlurmError, TooLate
from slurmplugins.launch.launch_call import LaunchAttempt
from slurmplugins.model.instance import assignments
from slurmplugins.slurm.node_queries import awaited_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.launch import LaunchRequest
    from slurmplugins.state.journal_view import JournalView


def resolve(
    engine: Engine, process_id: str, nodes: frozenset[NodeName], call_deadline: float
) -> None:
    """Ask again about unresolved launches of wanted nodes; journal the answers.

    A launch is asked about only while Slurm waits for all its nodes. The run has claimed `wanted`.
    It claims a launch's other nodes only for the time of the question. Nothing is asked after
    `latest`, by the monotonic clock.

    A launch may stay unresolved. Nothing is launched for its nodes until its last unanswered call
    is too old to matter. Raises StateError when the journal can't be used.
    """
    log, journal = engine.log.bind(run=process_id), engine.journal
    requests: list[LaunchRequest] = []

    def choose(view: JournalView) -> Iterable[NodeName]:
        """Return the launches' other nodes, to be claimed meanwhile.

        A launch is skipped if another run works on one of its nodes.
        """
        for request in view.unresolved_launches:
            if nodes.isdisjoint(request.nodes) or not view.claimed_nodes.isdisjoint(request.nodes):
                continue
            requests.append(request)
        return [node for request in requests for node in request.nodes if node not in nodes]

    other_nodes = journal.claim(process_id, choose, to_resolve=True)

    def repeat_launch(request: LaunchRequest) -> None:
        try:
            launch_attempt = LaunchAttempt(
                engine.cloud, journal, engine.clock, process_id, request, call_deadline
            )
            result = launch_attempt.call_once()
        except (CloudError, TooLate) as error:
            error_fields = {"slug": error.reason_code, "message": error.message}
            log.warning("still in doubt", attempt=request.attempt, **error_fields)
            return
        journal.record_launched(request.attempt, assignments(result.instances))
        log.info("settled", attempt=request.attempt, machines=len(result.instances))

    engine.workers.map(repeat_launch, _still_awaited(engine, requests))
    if other_nodes:
        journal.release(process_id, other_nodes)


def _still_awaited(engine: Engine, requests: Sequence[LaunchRequest]) -> list[LaunchRequest]:
    """Keep the requests that Slurm waits for with all their nodes.

    Empty when Slurm can't be asked.
    """
    nodes = [node for request in requests for node in request.nodes]
    try:
        nodes_of_slurm = awaited_nodes(engine.slurm, nodes) if nodes else frozenset()
    except SlurmError as error:
        engine.log.warning("nodes unread", message=error.message)
        return []
    return [request for request in requests if nodes_of_slurm.issuperset(request.nodes)]
