"""Give nodes without an instance back to Slurm, and tell their jobs why."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from slurmplugins.errors import SlurmError, SlurmUnreachable, StateError
from slurmplugins.execution.job_notices import JobNotifier
from slurmplugins.model import hostlist
from slurmplugins.model.actions import MarkDown, PowerDown
from slurmplugins.model.launch import Failure
from slurmplugins.slurm import node_queries
from slurmplugins.system import decision_log

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from slurmplugins.errors import EngineError
    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.launch import JobRequest
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


def give_back(
    engine: Engine, failures: Sequence[Failure], process_id: str = ""
) -> Sequence[Failure]:
    """Set the failures' nodes DOWN and power them down.

    All nodes go in one group of calls. Two kinds of nodes are skipped. The first came up meanwhile
    on an instance that stays. The second are claimed by a run other than `run`.

    A job may have no node of its own left here: all are kept for others, or given back with another
    job's. Such a job is requeued with the nodes of the rest of its request.

    Returns the failures whose jobs the caller must notify: those that were applied, or all of them
    when Slurm can't be read.
    """
    if not failures:
        return ()
    terminated_nodes = {node for failure in failures for node in failure.terminated_nodes}
    nodes = [node for failure in failures for node in failure.nodes]
    waiting_nodes = node_queries.read_awaited(
        engine.slurm, engine.clock, engine.log, nodes, terminated_nodes
    )
    slurm_unread = waiting_nodes is None
    waiting_nodes = (waiting_nodes or frozenset()) - _claimed_by_others(engine, process_id)
    reasons: dict[NodeName, str] = {}
    applied_failures: list[Failure] = []
    for failure in failures:
        nodes = [node for node in failure.nodes if node in waiting_nodes]
        for node in nodes:
            reasons.setdefault(node, failure.reason)
        applied_failures += [failure] if nodes or slurm_unread or not failure.nodes else []
        skip_event = decision_log.NOT_GIVEN_BACK if slurm_unread else "no longer waited for"
        engine.log.warning(
            decision_log.GIVEN_BACK if nodes or not failure.nodes else skip_event,
            job=failure.job,
            nodes=hostlist.compress(nodes or failure.nodes),
            slug=failure.reason_code,
            code=failure.code,
            message=failure.message,
            hold=failure.hold,
        )
    mark_downs = [MarkDown(node, reason) for node, reason in reasons.items()]
    engine.executor.run(
        [*mark_downs, *(PowerDown(node, reason) for node, reason in reasons.items())]
    )
    return applied_failures


def give_back_all(
    engine: Engine,
    requests: Sequence[JobRequest],
    failure: Failure,
    decided_nodes: Collection[NodeName] = frozenset(),
) -> None:
    """Give back every undecided node of the requests, and notify the jobs.

    The jobs learn of it now, not at ResumeTimeout.
    """
    open_requests = [
        (request, tuple(node for node in request.all_nodes if node not in decided_nodes))
        for request in requests
        if not all(node in decided_nodes for node in request.all_nodes)
    ]
    failures = [replace(failure, job=request.job, nodes=nodes) for request, nodes in open_requests]
    notify_jobs(engine, give_back(engine, failures))


def notify_jobs(engine: Engine, failures: Sequence[Failure]) -> None:
    """Comment why nodes were given back; hold hopeless jobs.

    A job is held if it would only fail again. The jobs are told one at a time, and that takes long.
    The first call without an answer from slurmctld ends it.
    """
    engine.launch_budget.record_held(
        JobNotifier(engine.slurm, engine.log).notify_failures(failures)
    )


def _claimed_by_others(engine: Engine, process_id: str) -> frozenset[NodeName]:
    """Return the nodes that other runs have claimed."""
    try:
        return engine.journal.view(excluded=process_id).claimed_nodes
    except StateError as error:
        engine.log.failure("journal", message=error.message)
        return frozenset()


def give_back_without_engine(
    slurm: Slurm, clock: Clock, logger: Log, requests: Sequence[JobRequest], error: EngineError
) -> None:
    """Give nodes back when the engine can't start; hold their jobs.

    `error` says why there is no engine, and becomes the nodes' reason. The jobs are held because
    the file is as wrong at their next try.
    """
    waiting_nodes = node_queries.read_awaited(
        slurm, clock, logger, [node for request in requests for node in request.nodes]
    )
    failures = [
        Failure(request.job, request.all_nodes, error.reason_code, message=error.message, hold=True)
        for request in requests
        if waiting_nodes is None or not waiting_nodes.isdisjoint(request.all_nodes)
    ]
    if not failures:
        return
    jobs = [item.job for item in failures if item.job is not None]
    event, fields = (
        decision_log.NOT_GIVEN_BACK,
        {"slug": error.reason_code, "message": error.message},
    )
    if waiting_nodes is None:
        logger.failure(event, jobs=jobs, **fields)
        return
    nodes = sorted(waiting_nodes)
    for call in (partial(slurm.down, nodes, failures[0].reason), partial(slurm.power_down, nodes)):
        try:
            call()
        except SlurmError as refusal:
            logger.failure(event, jobs=jobs, **fields, error=refusal.message)
            if isinstance(refusal, SlurmUnreachable):
                return
    JobNotifier(slurm, logger).notify_failures(failures)
