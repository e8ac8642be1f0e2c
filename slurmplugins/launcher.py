"""Starts the machines of many jobs: those that want the same together, each all or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.batches import Want
from slurmplugins.calls import Calls
from slurmplugins.lane import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurmplugins.board import Board
    from slurmplugins.clock import Clock
    from slurmplugins.cloud.base import Cloud
    from slurmplugins.crew import Crew
    from slurmplugins.journal import Journal
    from slurmplugins.log import Log
    from slurmplugins.model import Pool
    from slurmplugins.offerings import OfferingMemory
    from slurmplugins.planner import JobLaunch
    from slurmplugins.policy import Rung
    from slurmplugins.quotas import Quotas


class Launcher:
    """For one run. `attempt` makes a new attempt id; `jitter` is in [0, 1). After `deadline`, by
    the steady clock, nothing more is tried; what waits for its turn until `latest` is not asked.
    """

    def __init__(
        self,
        *,
        cluster: str,
        cloud: Cloud,
        journal: Journal,
        memory: OfferingMemory,
        clock: Clock,
        log: Log,
        attempt: Callable[[], str],
        jitter: Callable[[], float],
        deadline: float,
        latest: float,
        crew: Crew,
        quotas: Quotas,
    ) -> None:
        self._cluster = cluster
        self._cloud = cloud
        self._journal = journal
        self._memory = memory
        self._clock = clock
        self._log = log
        self._attempt = attempt
        self._jitter = jitter
        self._deadline = deadline
        self._latest = latest
        self._crew = crew
        self._quotas = quotas

    def launch(self, jobs: Sequence[JobLaunch], run: str, board: Board) -> None:
        """Machines for every node of each job, or the reason why it has none, to the board."""
        calls = self._calls(run)
        grouped: dict[tuple[str, tuple[Rung, ...]], tuple[Pool, list[Want]]] = {}
        for turn, job in enumerate(jobs):
            for ask in job.asks:
                _, wants = grouped.setdefault((ask.pool.name, ask.ladder), (ask.pool, []))
                wants.append(Want(turn, job.job, ask.nodes))
        lanes = [
            Lane(
                cluster=self._cluster,
                pool=pool,
                ladder=ladder,
                wants=wants,
                calls=calls,
                crew=self._crew,
                memory=self._memory,
                clock=self._clock,
                attempt=self._attempt,
                quotas=self._quotas,
                decided=board.decided,
                named=board.named,
            )
            for (_, ladder), (pool, wants) in grouped.items()
        ]
        self._crew.map(Lane.work, lanes)

    def end(self, ids: Sequence[str], run: str) -> None:
        """End machines that no job has; what still lives afterwards is reconcile's."""
        self._calls(run).end(ids)

    def _calls(self, run: str) -> Calls:
        return Calls(
            run=run,
            cloud=self._cloud,
            journal=self._journal,
            clock=self._clock,
            log=self._log,
            jitter=self._jitter,
            deadline=self._deadline,
            latest=self._latest,
        )
