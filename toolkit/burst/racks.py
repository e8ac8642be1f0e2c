"""A model of racks: a sum of CPUs, memory and GPUs, first in first out, with backfill.

It has no nodes: a job fits where the sums suffice. The first job of the queue has a promise. It is
the moment at which enough is free if all jobs run for their whole time limit (EASY backfill). A
later job may start before it. It must end before that moment, or need only what the first leaves.

Priorities, limits, reservations and jobs of other partitions are not modelled.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from slurmplugins.model.queued_job import NodeGroup
    from toolkit.burst.history import PastJob

DEPTH: Final = 100
"""The jobs of the queue that backfill looks at; Slurm's bf_max_job_test is five times as many."""
FOREVER: Final = 10 * 365 * 86_400.0
"""Seconds of a job without a time limit, for promises."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Free or needed resources."""

    cpus: int
    memory_mib: int
    gpus: int

    def holds(self, need: Amount) -> bool:
        return (
            self.cpus >= need.cpus and self.memory_mib >= need.memory_mib and self.gpus >= need.gpus
        )

    def plus(self, other: Amount) -> Amount:
        return Amount(
            self.cpus + other.cpus, self.memory_mib + other.memory_mib, self.gpus + other.gpus
        )

    def minus(self, other: Amount) -> Amount:
        return Amount(
            self.cpus - other.cpus, self.memory_mib - other.memory_mib, self.gpus - other.gpus
        )


def capacity(groups: Iterable[NodeGroup]) -> Amount:
    """Return all resources of these nodes."""
    total = Amount(0, 0, 0)
    for group in groups:
        gpus = sum(group.gpus.values())
        total = total.plus(
            Amount(group.count * group.cpus, group.count * group.memory_mib, group.count * gpus)
        )
    return total


def need_of(job: PastJob) -> Amount:
    return Amount(job.request.cpus, job.request.memory_mib, job.request.gpus)


class RackModel:
    """Racks with running jobs, at one moment that only moves on."""

    def __init__(self, total: Amount) -> None:
        self.total = total
        self.free = total
        self._running: list[tuple[float, int, float, Amount]] = []
        """End, a number, the end by the time limit, resources."""
        self._count = 0

    def next_end(self) -> float | None:
        """Return when the next job ends."""
        return self._running[0][0] if self._running else None

    def start(self, job: PastJob, at: float, until: float) -> None:
        """Run the job until then."""
        need = need_of(job)
        self._count += 1
        limit_end = max(until, at + _limit(job))
        heapq.heappush(self._running, (until, self._count, limit_end, need))
        self.free = self.free.minus(need)

    def end_jobs(self, now: float) -> None:
        """End the jobs whose time has come."""
        while self._running and self._running[0][0] <= now:
            self.free = self.free.plus(heapq.heappop(self._running)[3])

    def startable(self, queue: Sequence[PastJob], now: float) -> Iterator[PastJob]:
        """Yield the jobs that start now; the caller starts each at once."""
        waiting = [job for job in queue if self.total.holds(need_of(job))][:DEPTH]
        while waiting and self.free.holds(need_of(waiting[0])):
            yield waiting.pop(0)
        if not waiting:
            return
        promised_at, spare = self._promise(need_of(waiting[0]), now)
        for job in waiting[1:]:
            need = need_of(job)
            ends_before = now + _limit(job) <= promised_at
            if self.free.holds(need) and (ends_before or spare.holds(need)):
                if not ends_before:
                    spare = spare.minus(need)
                yield job

    def expected_starts(self, queue: Sequence[PastJob], now: float) -> list[float | None]:
        """Return the expected starts of the first jobs of the queue.

        Each job runs for its whole time limit, and none overtakes another. None: no rack will do.
        """
        ends = [(limit_end, number, need) for _, number, limit_end, need in self._running]
        heapq.heapify(ends)
        free, at = self.free, now
        starts: list[float | None] = []
        for number, job in enumerate(queue[:DEPTH], start=self._count + 1):
            need = need_of(job)
            if not self.total.holds(need):
                starts.append(None)
                continue
            while not free.holds(need) and ends:
                end, _, freed = heapq.heappop(ends)
                at, free = max(at, end), free.plus(freed)
            starts.append(at)
            free = free.minus(need)
            heapq.heappush(ends, (at + _limit(job), number, need))
        return starts

    def _promise(self, need: Amount, now: float) -> tuple[float, Amount]:
        """Return the first job's latest start, and what it leaves."""
        free = self.free
        for limit_end, freed in sorted(
            ((end, amount) for _, _, end, amount in self._running), key=lambda pair: pair[0]
        ):
            free = free.plus(freed)
            if free.holds(need):
                return max(now, limit_end), free.minus(need)
        return FOREVER + now, free.minus(need)


def _limit(job: PastJob) -> float:
    return FOREVER if job.time_limit is None else job.time_limit
