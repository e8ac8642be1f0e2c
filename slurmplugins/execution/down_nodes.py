"""Give nodes without an instance back to Slurm, and notify their jobs.

reconcile gives nodes back by the same calls (see `slurm_calls`), as its rules decide.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from slurmplugins.errors import StateError
from slurmplugins.execution.job_notices import JobNotifier
from slurmplugins.execution.slurm_calls import SlurmCalls
from slurmplugins.model import hostlist
from slurmplugins.model.actions import MarkDown, PowerDown
from slurmplugins.model.launch import NOT_AWAITED, Failure
from slurmplugins.slurm import node_queries
from slurmplugins.system.log_events import LogEvent

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

    Nodes that a ResumeProgram process other than `process_id` has claimed are skipped. So are nodes
    of a request that Slurm no longer waits for, if another job has them by now. Returns the
    failures whose jobs the caller must notify: those that were applied, or all of them when Slurm
    can't be read.
    """
    if not failures:
        return ()
    terminated_nodes = {node for failure in failures for node in failure.terminated_nodes}
    nodes = [node for failure in failures for node in failure.nodes]
    waiting_nodes = node_queries.read_awaited(
        engine.slurm, engine.clock, engine.log, nodes, terminated_nodes
    )
    if waiting_nodes is not None:
        waiting_nodes -= _claimed_by_others(engine, process_id)
        waiting_nodes -= _reallocated(engine, failures, waiting_nodes)
    calls = SlurmCalls(engine.slurm, engine.log)
    return _set_down(calls, engine.log, failures, waiting_nodes)


def _set_down(
    calls: SlurmCalls,
    log: Log,
    failures: Sequence[Failure],
    waiting_nodes: frozenset[NodeName] | None,
) -> Sequence[Failure]:
    """Set awaited nodes DOWN, power them down, and log each decision.

    All nodes go in one group of calls. `waiting_nodes` is None when Slurm can't be read. A node
    that Slurm no longer waits for is left alone: it registered, and its instance stays.

    A failure may name no node that is set DOWN here. It counts as applied, so that its job is
    notified. Such a job is requeued with the nodes of the rest of its request.

    Returns the failures that were applied, or all of them when Slurm can't be read.
    """
    reasons: dict[NodeName, str] = {}
    applied_failures: list[Failure] = []
    for failure in failures:
        nodes = [node for node in failure.nodes if node in (waiting_nodes or ())]
        for node in nodes:
            reasons.setdefault(node, failure.reason)
        event = LogEvent.NODES_GIVEN_BACK
        if failure.nodes and not nodes:
            event = LogEvent.NODES_NOT_AWAITED
            if waiting_nodes is None:
                event = LogEvent.NODES_NOT_GIVEN_BACK
        if event != LogEvent.NODES_NOT_AWAITED:
            applied_failures.append(failure)
        log.warning(
            event,
            job=failure.job,
            nodes=hostlist.compress(nodes or failure.nodes),
            slug=failure.reason_code,
            code=failure.code,
            message=failure.message,
            hold=failure.hold,
        )
    calls.mark_down([MarkDown(node, reason) for node, reason in reasons.items()])
    calls.power_down([PowerDown(node, reason) for node, reason in reasons.items()])
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

    A job is held if it would only fail again. The jobs are notified one at a time, which takes
    long. The first call without an answer from slurmctld ends it.
    """
    engine.launch_budget.record_held(
        JobNotifier(engine.slurm, engine.log).notify_failures(failures)
    )


def _claimed_by_others(engine: Engine, process_id: str) -> frozenset[NodeName]:
    """Return the nodes that other ResumeProgram processes have claimed."""
    try:
        return engine.journal.view(excluded=process_id).claimed_nodes
    except StateError as error:
        engine.log.failure(LogEvent.JOURNAL_READ_FAILED, message=error.message)
        return frozenset()


def _reallocated(
    engine: Engine, failures: Sequence[Failure], waiting_nodes: frozenset[NodeName]
) -> frozenset[NodeName]:
    """Return the nodes of late requests that only other jobs have now.

    slurmctld gave them away after it wrote the request. Such a job has a request of its own, or
    reconcile finds that the node gets no instance. Without slurmctld's answer each node of a late
    request counts as another job's.
    """
    late = [failure for failure in failures if failure.reason_code == NOT_AWAITED]
    nodes = waiting_nodes.intersection(node for failure in late for node in failure.nodes)
    if not nodes:
        return frozenset()
    jobs = node_queries.with_retries(
        engine.clock, engine.log, lambda: engine.slurm.jobs(hostlist.order(nodes))
    )
    if jobs is None:
        return nodes
    jobs_by_node: dict[NodeName, set[int]] = defaultdict(set)
    for job in jobs:
        for node in hostlist.expand(job.nodes, invalid_names=[]):
            jobs_by_node[node].add(job.id)
    return frozenset(
        node
        for failure in late
        for node in nodes.intersection(failure.nodes)
        if jobs_by_node[node] and failure.job not in jobs_by_node[node]
    )


def give_back_without_engine(
    slurm: Slurm, clock: Clock, log: Log, requests: Sequence[JobRequest], error: EngineError
) -> None:
    """Give nodes back when the engine can't start; hold their jobs.

    `error` says why there is no engine, and becomes the nodes' reason. The jobs are held,
    because an unreadable burst.json would fail their next try too.
    """
    nodes = [node for request in requests for node in request.nodes]
    waiting_nodes = node_queries.read_awaited(slurm, clock, log, nodes)
    failures = [
        Failure(request.job, request.all_nodes, error.reason_code, message=error.message, hold=True)
        for request in requests
    ]
    calls = SlurmCalls(slurm, log, stop_if_unreachable=True)
    applied_failures = _set_down(calls, log, failures, waiting_nodes)
    if waiting_nodes is not None and calls.reachable:
        JobNotifier(slurm, log).notify_failures(applied_failures)
