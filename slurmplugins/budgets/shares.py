"""Divide what is free of a budget among its accounts. Pure.

Slurm has a limit for each account, and none for several together. So each account gets a share, and
the shares together are never more than is free. They hold while no pass is made.

A share has room for waiting jobs first. Accounts take turns, and a job's cost is given whole or not
at all: two halves of the money would start neither of two jobs. The rest is for new jobs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from slurmplugins.config.budgets import Action
from slurmplugins.model.account_limits import UNITS_PER_USD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurmplugins.budgets.figures import Figures
    from slurmplugins.config.budgets import BudgetsConfig
    from slurmplugins.model.account_limits import BilledJob

WAITS_FOR_MONEY: Final = "AssocGrpBillingMinutes"
MAY_START: Final = frozenset({"", "None", "Priority", "Resources", WAITS_FOR_MONEY})
"""Reasons of jobs that count. Others may wait for days, and must not keep money from the rest."""
TURNS: Final = 100
"""A turn of an array takes this part of what is free, or one task."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A waiting job's cost until its time limit, in billing minutes of one task."""

    job: int
    units: int
    tasks: int = 1


def shares(
    by_account: Mapping[str, Figures], jobs: Iterable[BilledJob], config: BudgetsConfig
) -> dict[str, int | None]:
    """Return what each account may commit, in billing minutes.

    None: no limit.
    """
    result: dict[str, int | None] = {}
    waiting = [job for job in jobs if job.pending and job.reason in MAY_START]
    by_budget: dict[str, list[str]] = {}
    for name, item in by_account.items():
        by_budget.setdefault(item.budget.name, []).append(name)
    for names in by_budget.values():
        item = by_account[names[0]]
        if item.free is None:
            result.update(dict.fromkeys(names))
            continue
        free = int((item.free * UNITS_PER_USD).to_integral_value(ROUND_FLOOR))
        above = {name: _highest(name, names, config) for name in names}
        tops = sorted(set(above.values()))
        parts = dict.fromkeys(tops, free)
        if free > 0 and len(tops) > 1:
            own = {name: _of(name, waiting, item, config) for name in tops}
            queues = {name: [_demand(job) for job in queue] for name, queue in own.items()}
            short = {
                name
                for name in tops
                for job in own[name]
                # One that costs more than all that is free must not keep it from the rest.
                if job.reason == WAITS_FOR_MONEY and _demand(job).units <= free
            }
            parts = divide(free, queues, short)
        result.update({name: parts[above[name]] for name in names})
    return result


def divide(
    free: int, queues: Mapping[str, Sequence[Demand]], short: Iterable[str] = ()
) -> dict[str, int]:
    """Return each account's share.

    The rest goes to the accounts whose jobs wait for money, else to all: a job may cost Slurm more
    than it asked for.
    """
    parts, left = dict.fromkeys(queues, 0), free
    rows = {name: deque(sorted(queue, key=_number)) for name, queue in queues.items() if queue}
    order = [(0, row[0].job, name) for name, row in rows.items()]
    heapify(order)
    while order and left:
        _, _, name = heappop(order)
        job = rows[name].popleft()
        turn = min(job.tasks, max(1, free // TURNS // job.units))
        tasks = min(turn, left // job.units)
        parts[name] += tasks * job.units
        left -= tasks * job.units
        if tasks == turn < job.tasks:
            rows[name].appendleft(replace(job, tasks=job.tasks - tasks))
        if rows[name]:
            heappush(order, (parts[name], rows[name][0].job, name))
    takers = sorted(short) or sorted(queues)
    for name in takers:
        parts[name] += left // len(takers)
    return parts


def _number(demand: Demand) -> int:
    return demand.job


def _highest(name: str, names: Iterable[str], config: BudgetsConfig) -> str:
    """Return the budget's account above this one, or the account itself.

    Slurm counts the jobs of an account below against both limits.
    """
    above = [other for other in names if name in config.family(other)]
    return max(above, key=lambda other: len(config.family(other)), default=name)


def _of(
    name: str, waiting: Iterable[BilledJob], item: Figures, config: BudgetsConfig
) -> list[BilledJob]:
    """Return the account's jobs that money could start."""
    is_spot_only = Action.SPOT_ONLY in item.actions
    return [
        job
        for job in waiting
        if job.account in config.family(name)
        and job.usd_until_limit
        and not (is_spot_only and set(job.partitions) <= set(config.on_demand))
    ]


def _demand(job: BilledJob) -> Demand:
    cost = (job.usd_until_limit or Decimal(0)) * UNITS_PER_USD / job.tasks
    return Demand(job.id, int(cost.to_integral_value(ROUND_CEILING)), job.tasks)
