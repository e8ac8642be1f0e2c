"""A job's effect on the budgets that pay for it.

Pure but for one call on the head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.budgets.printing import LIFTED
from slurmplugins.config import budgets
from slurmplugins.errors import EngineError
from toolkit.budgets import facts
from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal

    from toolkit.budgets.facts import BudgetFacts, BudgetFigures
    from toolkit.config import ClusterConfig
    from toolkit.head_runner import Runner
    from toolkit.quote.quote import Price
    from toolkit.quote.request import JobRequest

SECONDS: Final = 60
"""Seconds that a quote waits for the head's figures."""


@dataclass(frozen=True, slots=True)
class BudgetStep:
    """A step of a budget."""

    at: int
    """Percent of the amount that is spent."""
    do: str


@dataclass(frozen=True, slots=True)
class BudgetEffect:
    """A budget before and after a job. Amounts are those that new jobs may still commit."""

    name: str
    until: datetime
    usd: Decimal
    usd_left: Decimal
    usd_left_after: Decimal | None
    """If it runs its whole time limit; None: the job's price is unknown."""
    usd_left_as_before: Decimal | None
    """If it runs as long as earlier ones; None without any."""
    percent_after: float | None
    """Spent at the end of this job and of those that run, if all run their whole time limits."""
    steps: tuple[BudgetStep, ...]
    """That are not reached yet, and may be by this job."""
    actions: tuple[str, ...]
    """That hold now."""
    waits: bool | None
    """Whether its time limit does not fit into what is left; None: the price is unknown."""
    ended: bool
    stale: bool
    known_until: datetime | None


@dataclass(frozen=True, slots=True)
class JobBudgets:
    """The budgets that pay for a job."""

    effects: tuple[BudgetEffect, ...] | None
    """None: they are not known."""
    unknown: str = ""
    """Why they are not known."""


def fetch(
    head: Runner, config: ClusterConfig, request: JobRequest, price: Price | None
) -> JobBudgets | None:
    """Return the budgets that pay for a job.

    None where the cluster has none. A head that does not answer costs no quote: the answer then
    says that nothing is known.
    """
    if not config.budgets:
        return None
    if not request.account and not request.wckey:
        return JobBudgets(None, "the job names no account")
    try:
        answer = facts.fetch(head, timeout=SECONDS)
        effects = tuple(_effect(item, answer, price) for item in _paying(answer, request))
    except (ToolkitError, EngineError, KeyError, TypeError, ValueError, ArithmeticError):
        return JobBudgets(None, "the head gives no figures")
    return JobBudgets(effects)


def _paying(answer: BudgetFacts, request: JobRequest) -> tuple[BudgetFigures, ...]:
    """Return the budgets that pay for a job.

    The head's own settings tell which. They are those of its account, of the accounts above it, and
    of its project. Before its first day a grant pays nothing and limits nothing.
    """
    limits, account = budgets.parse({budgets.KEY: answer.config}), request.account.lower()
    project = limits.project_of(account, request.wckey)
    return tuple(
        item
        for item in answer.budgets
        if item.begin <= answer.at
        and (
            project in item.projects
            or any(account in limits.family(name) for name in item.accounts)
        )
    )


def _effect(item: BudgetFigures, answer: BudgetFacts, price: Price | None) -> BudgetEffect:
    left = item.usd_free
    if left is None:  # no step of it holds jobs
        left = item.usd - item.usd_spent - item.usd_committed
    usd = None if price is None else price.usd_limit
    usual = None if price is None else price.usd_usual
    all_spent = None if usd is None else item.usd_spent + item.usd_committed + usd
    return BudgetEffect(
        name=item.name,
        until=item.end,
        usd=item.usd,
        usd_left=left,
        usd_left_after=None if usd is None else left - usd,
        usd_left_as_before=None if usual is None else left - usual,
        percent_after=None if all_spent is None else float(all_spent * 100 / item.usd),
        steps=() if all_spent is None else _reachable(item, answer, all_spent),
        actions=item.actions,
        waits=_waits(item, usd),
        ended=item.ended,
        stale=item.stale,
        known_until=answer.measured_until,
    )


def _reachable(
    item: BudgetFigures, answer: BudgetFacts, all_spent: Decimal
) -> tuple[BudgetStep, ...]:
    """Return the steps that only this amount reaches."""
    if item.override is not None and item.override.usd == LIFTED:
        return ()
    steps: list[dict[str, Any]] = answer.limits[item.name]["steps"]
    return tuple(
        BudgetStep(int(step["at"]), str(step["do"]))
        for step in steps
        if (item.step or 0) < step["at"] and all_spent * 100 >= item.usd * step["at"]
    )


def _waits(item: BudgetFigures, usd: Decimal | None) -> bool | None:
    if item.usd_free is None:
        return False
    if budgets.HOLDING & frozenset(item.actions):
        return True
    return None if usd is None else usd > item.usd_free
