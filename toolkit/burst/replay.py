"""A replay of a past queue on a model of racks, with or without bursts.

The decision is the head's own (`slurmplugins.governor.decide`). An instance boots as long as
ResumeTimeout permits, and a job runs in the cloud as long as it really did.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from slurmplugins.governor.decide import Facts, Reason, decide
from slurmplugins.governor.spending import month_of
from slurmplugins.governor.words import LASTING
from slurmplugins.model.queued_job import QueuedJob
from toolkit.burst.racks import RackModel, capacity, need_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.config.governor import GovernorConfig, RackRule
    from slurmplugins.governor.decide import Cost, Decision
    from slurmplugins.model.queued_job import QueuePartition
    from toolkit.burst.history import PastJob

_HOUR: Final = 3600
_CENT: Final = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A rule with its partitions, and the time in which jobs are counted.

    Jobs that began before `since` only fill the racks. Times are epoch seconds.
    """

    rule: RackRule
    rack: QueuePartition
    cloud: QueuePartition
    config: GovernorConfig
    since: float
    until: float
    bursts: bool = True

    def without_bursts(self) -> Scenario:
        return replace(self, bursts=False)

    def with_threshold(self, after: float) -> Scenario:
        """Return the scenario with one threshold for every QOS that may burst."""
        qos = dict.fromkeys(self.rule.qos, after)
        return replace(self, rule=replace(self.rule, after=after, qos=qos))


@dataclass(frozen=True, slots=True)
class _CloudJob:
    """A job in the cloud, until its instances end."""

    account: str
    ends_at: float
    worst_usd: Decimal
    usd: Decimal


class Replay:
    """A replay of a queue; its result is in the public attributes."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._model = RackModel(capacity(scenario.rack.groups))
        self._queue: list[tuple[int, PastJob]] = []
        self._in_cloud: list[_CloudJob] = []
        self._settled: set[int] = set()
        """Jobs that never burst, however long they wait."""
        self._spent: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
        self.waits: dict[int, float] = {}
        """Seconds, by the job's place in the list."""
        self.over_budget: set[int] = set()
        self.bursts = 0

    @property
    def never_started(self) -> int:
        """Return how many jobs the racks have no room for."""
        return len(self._queue)

    @property
    def usd_by_account(self) -> dict[str, Decimal]:
        """Return what all jobs in the cloud cost."""
        totals: dict[str, Decimal] = defaultdict(Decimal)
        for (account, _), usd in self._spent.items():
            totals[account] += usd
        for item in self._in_cloud:
            totals[item.account] += item.usd
        return {name: usd for name, usd in sorted(totals.items()) if usd}

    def run(self, jobs: Sequence[PastJob]) -> None:
        """Replay all jobs, which are sorted by the time of eligibility."""
        since = self._scenario.since
        arrivals = []
        for number, job in enumerate(jobs):
            if job.in_cloud or job.started_at >= since:
                arrivals.append((number, job))
            elif self._model.free.holds(need_of(job)):
                self._model.start(job, job.started_at, job.ended_at)
        index, now = 0, since
        while True:
            arrival = arrivals[index][1].eligible_at if index < len(arrivals) else None
            moment = self._next_moment(arrival, now)
            if moment is None:
                return
            now = max(now, moment)
            self._model.end_jobs(now)
            while index < len(arrivals) and arrivals[index][1].eligible_at <= now:
                self._queue.append(arrivals[index])
                index += 1
            self._start_on_racks(now)
            if self._scenario.bursts:
                self._pass(now)

    def _next_moment(self, arrival: float | None, now: float) -> float | None:
        """Return the next moment at which anything may change, if any.

        Without a change, a pass decides as the one before.
        """
        moments = [at for at in (arrival, self._model.next_end()) if at is not None]
        if self._scenario.bursts and self._queue:
            old_at = (self._old_at(job) for _, job in self._queue)
            cloud_ends = (item.ends_at for item in self._in_cloud)
            moments += [at for at in (*old_at, *cloud_ends) if at > now]
        return min(moments, default=None)

    def _old_at(self, job: PastJob) -> float:
        return job.eligible_at + self._scenario.rule.after

    def _start_on_racks(self, now: float) -> None:
        numbers = {id(job): number for number, job in self._queue}
        started = set()
        for job in self._model.startable([job for _, job in self._queue], now):
            self._model.start(job, now, now + job.seconds)
            number = numbers[id(job)]
            started.add(number)
            self._note_wait(number, job, now)
        if started:
            self._queue = [row for row in self._queue if row[0] not in started]

    def _pass(self, now: float) -> None:
        """Decide about the waiting jobs that may have become able to burst."""
        rows = [
            (place, number, job)
            for place, (number, job) in enumerate(self._queue)
            if number not in self._settled
            and (now >= self._old_at(job) or not self._model.total.holds(need_of(job)))
        ]
        if not rows:
            return
        starts = self._model.expected_starts([job for _, job in self._queue], now)
        gone = set()
        for place, number, job in rows:
            decision = self._decide(job, starts[place] if place < len(starts) else None, now)
            if decision.bursts and decision.cost is not None:
                self._burst(number, job, decision, decision.cost, now)
                gone.add(number)
            elif decision.reason is Reason.OVER_BUDGET:
                self.over_budget.add(number)
            elif decision.reason in LASTING:
                self._settled.add(number)
        self._queue = [row for row in self._queue if row[0] not in gone]

    def _decide(self, job: PastJob, start_at: float | None, now: float) -> Decision:
        scenario = self._scenario
        budget = scenario.rule.budgets.get(job.account, Decimal(0))
        waiting = QueuedJob(
            id=job.id,
            label=str(job.id),
            states=frozenset({"PENDING"}),
            partitions=(scenario.rule.rack,),
            account=job.account,
            qos=job.qos,
            request=job.request,
            submitted_at=job.eligible_at,
            eligible_at=job.eligible_at,
            start_at=start_at,
            time_limit=job.time_limit,
            comment=job.comment,
        )
        remaining = budget - self._used(job.account, now)
        facts = Facts(now, scenario.rack, scenario.cloud, remaining)
        return decide(waiting, scenario.rule, facts, scenario.config)

    def _used(self, account: str, now: float) -> Decimal:
        """Return what the account has used of this month's budget."""
        for item in self._in_cloud:
            if item.ends_at <= now:
                self._spent[item.account, month_of(item.ends_at)] += item.usd
        self._in_cloud = [item for item in self._in_cloud if item.ends_at > now]
        worst = (item.worst_usd for item in self._in_cloud if item.account == account)
        return self._spent[account, month_of(now)] + sum(worst, Decimal(0))

    def _burst(self, number: int, job: PastJob, decision: Decision, cost: Cost, now: float) -> None:
        config = self._scenario.config
        seconds = config.boot + job.seconds + config.tail
        usd = (cost.usd_per_hour * Decimal(seconds) / _HOUR + decision.data_usd).quantize(_CENT)
        ends_at = now + decision.data_seconds + seconds
        self._in_cloud.append(_CloudJob(job.account, ends_at, cost.usd, min(usd, cost.usd)))
        self.bursts += 1
        self._note_wait(number, job, now + decision.data_seconds + config.boot)

    def _note_wait(self, number: int, job: PastJob, started_at: float) -> None:
        if job.eligible_at >= self._scenario.since:
            self.waits[number] = max(0.0, started_at - job.eligible_at)
