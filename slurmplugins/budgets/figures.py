"""The state of a budget: spent, committed, forecast, and its step. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from slurmplugins.budgets import memory as memories
from slurmplugins.budgets.memory import Standing
from slurmplugins.budgets.periods import DAY, Period, day_of, period_of
from slurmplugins.config.budgets import HOLDING, Action, BudgetStep

if TYPE_CHECKING:
    from slurmplugins.budgets.memory import Memory, Override
    from slurmplugins.config.budgets import Budget

CENT: Final = Decimal("0.01")
STALE: Final = 900.0
"""Seconds. Older figures take no new step, and lower no limit."""
TREND: Final = 7 * DAY
"""Seconds before now from which the forecast takes the spending."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A budget at one moment."""

    budget: Budget
    period: Period
    usd: Decimal
    """The amount, with a person's addition."""
    spent: Decimal
    committed: Decimal
    """Running jobs until their time limits, and their instances' last idle time."""
    forecast: Decimal
    """At the period's end, at the pace of the last week."""
    step: BudgetStep | None
    since: float | None
    """When the step was reached."""
    stale: bool
    override: Override | None
    standing: Standing
    ended: bool = False
    """A grant that ended: it pays no job any more."""

    @property
    def actions(self) -> frozenset[Action]:
        """Return the actions that hold now: those of all reached steps."""
        if self.override is not None and self.override.usd is None:
            return frozenset()
        return frozenset(
            step.action for step in self.budget.steps if step.percent <= self.standing.percent
        )

    @property
    def holds(self) -> bool:
        """Return whether no job of the budget may start."""
        return bool(self.actions & HOLDING)

    @property
    def requeues(self) -> bool:
        """Return whether its running jobs are requeued; stale figures requeue none."""
        return Action.REQUEUE in self.actions and not self.stale

    @property
    def free(self) -> Decimal | None:
        """Return US dollars that new jobs may still commit; None: no limit."""
        if self.override is not None and self.override.usd is None:
            return None
        percents = [step.percent for step in self.budget.steps if step.action in HOLDING]
        if not percents:
            return None
        return self.usd * min(percents) / 100 - self.spent - self.committed


def figures(budget: Budget, memory: Memory, spending: Spending, now: float) -> Figures:
    """Return the budget's state, with the step that it has reached."""
    period = period_of(budget, now)
    override = memory.overrides.get(budget.name)
    if override is not None and override.until <= now:
        override = None
    extra = override.usd if override is not None and override.usd is not None else Decimal(0)
    last = min(now, period.end - 1)
    spent = _spent(memory, spending, period.begin, last)
    usd = budget.usd + extra
    is_stale = now - memory.measured_until > STALE
    standing = _standing(budget, memory, period, spent, usd, is_stale=is_stale, now=now)
    return Figures(
        budget=budget,
        period=period,
        usd=usd,
        spent=spent,
        committed=spending.committed,
        forecast=_forecast(memory, spending, period, spent, now),
        step=_step(budget, standing.percent),
        since=standing.since if standing.percent else None,
        stale=is_stale,
        override=override,
        standing=standing,
        ended=now >= period.end,
    )


@dataclass(frozen=True, slots=True)
class Spending:
    """The accounts and projects of a budget, and what their running jobs may still cost."""

    accounts: frozenset[str]
    projects: frozenset[str] = frozenset()
    committed: Decimal = Decimal(0)


def _standing(
    budget: Budget,
    memory: Memory,
    period: Period,
    spent: Decimal,
    usd: Decimal,
    *,
    is_stale: bool,
    now: float,
) -> Standing:
    """Return the reached step.

    Stale figures reach no new one: what they know is spent stays spent. A grant that ended is at
    its last step, and one that has not begun at none.
    """
    known = memory.standings.get(budget.name)
    if known is not None and known.period != period.begin:
        known = None
    if now < period.begin:
        reached = 0
    elif now >= period.end:
        reached = max(step.percent for step in budget.steps)
    else:
        reached = max(
            (s.percent for s in budget.steps if spent * 100 >= usd * s.percent), default=0
        )
    if is_stale and now < period.end:
        reached = min(reached, known.percent if known else 0)
    if known is not None and known.percent == reached:
        return known
    return Standing(period.begin, reached, now)


def _spent(memory: Memory, spending: Spending, first: float, last: float) -> Decimal:
    days = day_of(first), day_of(last)
    return memories.spent(memory, spending.accounts, spending.projects, *days)


def _step(budget: Budget, percent: int) -> BudgetStep | None:
    reached = [step for step in budget.steps if step.percent <= percent]
    return max(reached, key=lambda step: step.percent, default=None)


def _forecast(
    memory: Memory, spending: Spending, period: Period, spent: Decimal, now: float
) -> Decimal:
    """Return the spending at the end by the last week's pace."""
    begin = max(now - TREND, memory.measured_from)
    first = (begin // DAY) * DAY  # spending is known by whole days
    recent = _spent(memory, spending, first, now)
    seconds = Decimal(max(now - max(first, memory.measured_from), 3600.0))
    left = Decimal(max(0.0, period.end - max(now, period.begin)))
    return (spent + recent * left / seconds).quantize(CENT, ROUND_HALF_UP)
