"""Give nodes back to Slurm that get no instance, and tell their jobs why."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from slurmplugins.errors import SlurmError, SlurmUnreachable
from slurmplugins.system import decision_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.errors import EngineError
    from slurmplugins.model.launch import JobRequest
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


def refuse(
    slurm: Slurm, clock: Clock, logger: Log, asks: Sequence[JobRequest], error: EngineError
) -> None:
    """Give the nodes back with the reason why there is no engine to launch them, and hold the jobs:
    the file is as wrong at their next try.
    """
    from slurmplugins.execution.job_notices import Teller
    from slurmplugins.model.launch import Failure
    from slurmplugins.slurm import node_queries

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
