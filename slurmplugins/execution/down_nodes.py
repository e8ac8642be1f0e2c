"""Give nodes without an instance back to Slurm, and tell their jobs why."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from slurmplugins.errors import SlurmError, SlurmUnreachable, StateError
from slurmplugins.execution.job_notices import Teller
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


def give_back(engine: Engine, failures: Sequence[Failure], run: str = "") -> Sequence[Failure]:
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
    ended = {node for failure in failures for node in failure.ended}
    nodes = [node for failure in failures for node in failure.nodes]
    waiting = node_queries.read(engine.slurm, engine.clock, engine.log, nodes, ended)
    unread = waiting is None
    waiting = (waiting or frozenset()) - _others(engine, run)
    reasons: dict[NodeName, str] = {}
    told: list[Failure] = []
    for failure in failures:
        nodes = [node for node in failure.nodes if node in waiting]
        for node in nodes:
            reasons.setdefault(node, failure.reason)
        told += [failure] if nodes or unread or not failure.nodes else []
        left = decision_log.NOT_GIVEN_BACK if unread else "no longer waited for"
        engine.log.warning(
            decision_log.GIVEN_BACK if nodes or not failure.nodes else left,
            job=failure.job,
            nodes=hostlist.compress(nodes or failure.nodes),
            slug=failure.slug,
            code=failure.code,
            message=failure.message,
            hold=failure.hold,
        )
    downs = [MarkDown(node, reason) for node, reason in reasons.items()]
    engine.executor.run([*downs, *(PowerDown(node, reason) for node, reason in reasons.items())])
    return told


def give_back_all(
    engine: Engine,
    asks: Sequence[JobRequest],
    failure: Failure,
    decided: Collection[NodeName] = frozenset(),
) -> None:
    """Give back every undecided node of the requests, and notify the jobs.

    The jobs learn of it now, not at ResumeTimeout.
    """
    left = [
        (ask, tuple(node for node in ask.wanted if node not in decided))
        for ask in asks
        if not all(node in decided for node in ask.wanted)
    ]
    failures = [replace(failure, job=ask.job, nodes=nodes) for ask, nodes in left]
    tell_jobs(engine, give_back(engine, failures))


def tell_jobs(engine: Engine, failures: Sequence[Failure]) -> None:
    """Comment why nodes were given back; hold hopeless jobs.

    A job is held if it would only fail again. The jobs are told one at a time, and that takes long.
    The first call without an answer from slurmctld ends it.
    """
    engine.brake.held(Teller(engine.slurm, engine.log).failures(failures))


def _others(engine: Engine, run: str) -> frozenset[NodeName]:
    """Return the nodes that other runs have claimed."""
    try:
        return engine.journal.claims(but=run).busy
    except StateError as error:
        engine.log.problem("journal", message=error.message)
        return frozenset()


def refuse(
    slurm: Slurm, clock: Clock, logger: Log, asks: Sequence[JobRequest], error: EngineError
) -> None:
    """Give nodes back when the engine can't start; hold their jobs.

    `error` says why there is no engine, and becomes the nodes' reason. The jobs are held because
    the file is as wrong at their next try.
    """
    waiting = node_queries.read(slurm, clock, logger, [node for ask in asks for node in ask.nodes])
    failures = [
        Failure(ask.job, ask.wanted, error.slug, message=error.message, hold=True)
        for ask in asks
        if waiting is None or not waiting.isdisjoint(ask.wanted)
    ]
    if not failures:
        return
    jobs = [item.job for item in failures if item.job is not None]
    unread, said = decision_log.NOT_GIVEN_BACK, {"slug": error.slug, "message": error.message}
    if waiting is None:
        logger.problem(unread, jobs=jobs, **said)
        return
    nodes = sorted(waiting)
    for call in (partial(slurm.down, nodes, failures[0].reason), partial(slurm.power_down, nodes)):
        try:
            call()
        except SlurmError as refused:
            logger.problem(unread, jobs=jobs, **said, error=refused.message)
            if isinstance(refused, SlurmUnreachable):
                return
    Teller(slurm, logger).failures(failures)
