"""The source of spending: the head's own records of instances, and Slurm's jobs.

No call of AWS is made: reconcile has written which instances ran, and at which price each was
bought. slurmctld knows the jobs of the last five minutes. After a longer gap sacct is asked, and
slurmctld says which attempts without an end still run.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import TYPE_CHECKING, Final

from slurmplugins.budgets.memory import Memory, is_closed, without_days_before
from slurmplugins.budgets.meter import Allocation, InstanceTime, measure
from slurmplugins.budgets.open_attempts import KnownJobs, end_of
from slurmplugins.budgets.periods import DAY, day_of, period_of
from slurmplugins.budgets.weights import Purchase
from slurmplugins.errors import BadName, SlurmUnreachable
from slurmplugins.model.hostlist import NodeName, expand
from slurmplugins.slurm.account_limits import usd_per_hour
from slurmplugins.slurm.sacct import second

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from slurmplugins.config.budgets import BudgetsConfig
    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.model.account_limits import BilledJob
    from slurmplugins.reconciler.instance_ledger import LedgerEntry
    from slurmplugins.slurm.accounting import Accounting

RECENT: Final = 240.0
"""Seconds for which slurmctld surely knows every job: MinJobAge is 300."""
LONGEST: Final = 366 * DAY
"""Seconds before now at which a first measurement begins at the earliest."""
KEPT_DAYS: Final = 800
"""Days of spending that are kept at least; those of a longer grant are kept too."""


class HeadSpending:
    """A source from the head's own records."""

    def __init__(
        self,
        config: BurstConfig,
        budgets: BudgetsConfig,
        ledger: Callable[[], Iterable[LedgerEntry]],
        accounting: Accounting,
    ) -> None:
        self._config = config
        self._budgets = budgets
        self._ledger = ledger
        self._accounting = accounting

    def measured(self, memory: Memory, jobs: Sequence[BilledJob], now: float) -> Iterator[Memory]:
        """Yield the memory after each part of the time.

        Raises SlurmError.
        """
        begins = [period_of(item, now).begin for item in self._budgets.budgets.values()]
        oldest = day_of(min([now - KEPT_DAYS * DAY, *begins]))
        for item in self._measured(memory, jobs, now):
            yield without_days_before(item, oldest)

    def _measured(self, memory: Memory, jobs: Sequence[BilledJob], now: float) -> Iterator[Memory]:
        instances = self.instances(now, memory.measured_until or now)
        known = KnownJobs({job.id: job for job in jobs}, now, cache(self._accounting.is_settled))
        if self._budgets.projects != memory.projects.keys():
            memory = self._with_projects(memory, instances, known)
            yield memory
        since = memory.measured_until or self._first_second(now)
        while now - since > RECENT:
            until = min(since + DAY, now)
            memory = measure(memory, instances, self._past(since, until, known), since, until)
            yield memory
            since = until
        if now > since:
            present = allocations(jobs, self._budgets, now)
            memory = measure(memory, instances, present, since, now)
            yield memory
        yield from self._with_earlier_days(memory, instances, known)

    def _with_earlier_days(
        self, memory: Memory, instances: Sequence[InstanceTime], known: KnownJobs
    ) -> Iterator[Memory]:
        """Yield the memory with one more of the days before it.

        A budget that is added later may have a longer period than those so far. Days that a report
        has closed keep its amounts.
        """
        first = self._first_second(known.at)
        while first < memory.measured_from:
            until = memory.measured_from
            since = max((until - 1) // DAY * DAY, first)
            if not is_closed(memory, day_of(since)):
                own = replace(
                    memory, closed_until="", last_account={}, last_project={}, unclaimed={}
                )
                found = measure(own, instances, self._past(since, until, known), since, until)
                memory = replace(
                    memory, days=found.days, projects=found.projects, nobody=found.nobody
                )
            memory = replace(memory, measured_from=since)
            yield memory

    def _with_projects(
        self, memory: Memory, instances: Sequence[InstanceTime], known: KnownJobs
    ) -> Memory:
        """Return the memory with the days of exactly these projects.

        A new project's part of the days so far is read from slurmdbd. Raises SlurmError.
        """
        names = self._budgets.projects
        past, since = Memory(), max(self._first_second(known.at), memory.measured_from)
        while names - memory.projects.keys() and since < memory.measured_until:
            until = min(since + DAY, memory.measured_until)
            past = measure(past, instances, self._past(since, until, known), since, until)
            since = until
        days = {**past.projects, **memory.projects}
        return replace(memory, projects={name: days.get(name, {}) for name in sorted(names)})

    def instances(self, now: float, seen_until: float | None = None) -> list[InstanceTime]:
        """Return the times that EC2 bills of the ledger's instances.

        Where nobody saw an end, a pass may have noticed it hours later. It counts as no later than
        `seen_until`, and a report adds what it can prove.
        """
        return [
            item
            for entry in self._ledger()
            if entry.pool in self._config.pools and entry.node  # the head is in none
            for item in self._times(entry, now, now if seen_until is None else seen_until)
        ]

    def purchases(self, now: float) -> Iterator[Purchase]:
        """Yield the instances of the last hours with their prices."""
        pools = {entry.instance_id: entry.pool for entry in self._ledger()}
        for item in self.instances(now):
            yield Purchase(pools[item.id], item.usd_per_hour, item.end - item.begin)

    def _times(self, entry: LedgerEntry, now: float, seen_until: float) -> Iterator[InstanceTime]:
        price = _price(entry.price) or self._dearest(entry.pool)
        if price is None:
            return  # its jobs cost what Slurm bills them
        begin = entry.running_at or entry.launched_at
        ended = now if entry.ended_at is None else entry.ended_at
        if not entry.end_seen:
            ended = min(ended, max(begin, seen_until))
        for stopped_at, started_at in (*entry.stops, (ended, None)):
            if stopped_at > begin:
                is_static = NodeName(entry.node) in self._config.static_nodes
                yield InstanceTime(
                    entry.instance_id, entry.node, begin, stopped_at, price, is_static
                )
            begin = ended if started_at is None else started_at

    def _dearest(self, pool: str) -> Decimal | None:
        known = self._config.pools.get(pool)
        prices = [_price(item.price) for item in known.offerings] if known else []
        return max((price for price in prices if price is not None), default=None)

    def _first_second(self, now: float) -> float:
        begins = [period_of(item, now).begin for item in self._budgets.budgets.values()]
        return max(min([*begins, now]), now - LONGEST)

    def _past(self, since: float, until: float, known: KnownJobs) -> list[Allocation]:
        known.is_settled()  # asked before sacct: an end that was on its way is in its answer
        answer = self._accounting.window(int(since), int(until) + 1)
        if answer is None:
            raise SlurmUnreachable("sacct can't read a day of attempts within a minute")
        items = (_of_row(row, self._budgets, until, known) for row in answer.rows())
        return [item for item in items if item is not None]


def allocations(jobs: Iterable[BilledJob], budgets: BudgetsConfig, now: float) -> list[Allocation]:
    """Return the attempts of slurmctld's jobs."""
    return [
        Allocation(
            job.account,
            job.nodes,
            job.begin,
            now if job.running else min(now, job.end or now),
            job.usd_per_hour,
            budgets.project_of(job.account, job.wckey),
        )
        for job in jobs
        if job.nodes and job.begin and not job.pending
    ]


def _of_row(
    row: Mapping[str, str], budgets: BudgetsConfig, until: float, known: KnownJobs
) -> Allocation | None:
    """Return an attempt of sacct.

    None: it never started, or is a runaway job's.
    """
    begin = second(row["Start"])
    if begin is None:
        return None
    try:
        nodes = expand(row["NodeList"])
    except BadName:
        return None
    end = end_of(row, begin, until, known)
    if end is None:
        return None
    account, usd = row["Account"], usd_per_hour(row["AllocTRES"])
    project = budgets.project_of(account, row.get("WCKey", ""))
    return Allocation(account, tuple(nodes), begin, end, usd, project)


def _price(text: str) -> Decimal | None:
    try:
        price = Decimal(text)
    except InvalidOperation:
        return None
    return price if price.is_finite() and 0 < price < DAY else None
