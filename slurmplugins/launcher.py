"""Starts the machines of many jobs: those that want the same together, each all or nothing."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from slurmplugins.batches import Want
from slurmplugins.calls import Calls
from slurmplugins.errors import (
    Capacity,
    CloudError,
    CloudUnreachable,
    Denied,
    EngineError,
    InvalidRequest,
    NotFound,
    PriceTooLow,
    Quota,
    Throttled,
)
from slurmplugins.lane import Decision, Lane
from slurmplugins.model import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurmplugins.clock import Clock
    from slurmplugins.cloud.base import Cloud
    from slurmplugins.crew import Crew
    from slurmplugins.journal import Journal
    from slurmplugins.log import Log
    from slurmplugins.model import Assignment, Pool, Refusal
    from slurmplugins.names import NodeName
    from slurmplugins.offerings import OfferingMemory
    from slurmplugins.planner import JobLaunch
    from slurmplugins.policy import Rung

_GRAVITY: Final = (Denied, InvalidRequest, NotFound, Quota, CloudUnreachable, Throttled)
"""When offerings fail for different reasons, the one a person must act on is named first."""


@dataclass(frozen=True, slots=True)
class Results:
    """Jobs that have all their machines now, and jobs that get none. `served`: all nodes of the
    former; `assignments`: their new machines.
    """

    assignments: tuple[Assignment, ...] = ()
    failures: tuple[Failure, ...] = ()
    served: tuple[NodeName, ...] = ()


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

    def launch(
        self,
        jobs: Sequence[JobLaunch],
        run: str,
        settled: Callable[[Results], None],
        named: Callable[[Sequence[Assignment]], None] = lambda _: None,
    ) -> None:
        """Machines for every node of each job, or the reason why it has none.

        `settled` hears of every job exactly once, of many at a time, from any thread: each lane
        goes on when it returns. Nothing that was started for a job that fails is kept. `named`
        hears of instances as they come, those of jobs that will fail among them.
        """
        calls = self._calls(run)
        board = _Board(jobs, calls, settled)
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
                decided=board.decided,
                named=named,
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


class _Board:
    """Adds decisions of lanes up to results of jobs."""

    def __init__(
        self, jobs: Sequence[JobLaunch], calls: Calls, settled: Callable[[Results], None]
    ) -> None:
        self._jobs = jobs
        self._calls = calls
        self._settled = settled
        self._told: list[list[Decision]] = [[] for _ in jobs]
        self._lock = threading.Lock()

    def decided(self, decisions: Sequence[Decision]) -> None:
        with self._lock:  # all lanes wait for it: what takes time comes after
            added = [self._add(decision) for decision in decisions]
        done = [told for told in added if told]
        if done:
            self._settled(self._results(done))

    def _add(self, decision: Decision) -> Sequence[Decision]:
        """All there is about the decision's job, once this is the last of it."""
        told = self._told[decision.want.turn]
        told.append(decision)
        return told if len(told) == len(self._jobs[decision.want.turn].asks) else ()

    def _results(self, done: Sequence[Sequence[Decision]]) -> Results:
        assignments: list[Assignment] = []
        failures: list[Failure] = []
        served: list[NodeName] = []
        for told in done:
            job = self._jobs[told[0].want.turn]
            failed = [item for item in told if not item.machines]
            mine = [machine for item in told for machine in item.machines]
            if failed:
                ended = [*job.adopted, *mine]
                self._calls.end([machine.instance_id for machine in ended])
                nodes = tuple(machine.node for machine in ended)
                failures.append(replace(_failure(job, failed), ended=nodes))
            else:
                assignments += mine
                served += job.nodes
        return Results(tuple(assignments), tuple(failures), tuple(served))


def _failure(job: JobLaunch, failed: Sequence[Decision]) -> Failure:
    """One reason for the job, of the gravest kind, telling what every offering said."""
    refusals = [item for decision in failed for item in decision.refusals]
    own = [decision.error for decision in failed if decision.error is not None]
    errors: list[EngineError] = [*own, *(item.error for item in refusals)]
    if not errors:
        return Failure(job.job, job.nodes, Capacity.slug, "NoOffering", "no offering to try")
    worst = min(errors, key=_gravity)
    known = [item.error for item in refusals]
    messages = [_said(refusals), *(e.message for e in own if e not in known)]
    return Failure(
        job.job,
        job.nodes,
        worst.slug,
        worst.code if isinstance(worst, CloudError) else "",
        "; ".join(text for text in messages if text),
        # Where one offering may have capacity again tomorrow, the job may well wait for it; and an
        # offering that another job asked for too much of may do for this one.
        hold=all(isinstance(error, CloudError) and error.holds for error in errors)
        and not any(item.passed_on for item in refusals),
    )


def _said(refusals: Sequence[Refusal]) -> str:
    texts = (f"{item.offering.key}: {item.error.code}: {item.error.message}" for item in refusals)
    return "; ".join(dict.fromkeys(texts))


def _gravity(error: EngineError) -> int:
    if not isinstance(error, CloudError):
        return -1  # our own disk or time: nothing was asked of the cloud
    if isinstance(error, Capacity | PriceTooLow):
        return len(_GRAVITY) + 1
    kinds = (index for index, kind in enumerate(_GRAVITY) if isinstance(error, kind))
    return next(kinds, len(_GRAVITY))
