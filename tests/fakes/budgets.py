"""Accounts, budgets and a Slurm with limits, from which the budgets' tests start."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from slurmplugins.budgets.memory import Memory
from slurmplugins.budgets.plan import BudgetSnapshot
from slurmplugins.config.budgets import (
    AccountBudget,
    Action,
    BudgetsConfig,
    BudgetStep,
    PeriodKind,
)
from slurmplugins.model.account_limits import AccountLimits, BilledJob

NOW = 1_795_694_400.0  # 2026-11-26T12:00:00Z, a Thursday
TODAY = "2026-11-26"
NOVEMBER = 1_793_491_200.0  # its first second
DECEMBER = 1_796_083_200.0
STEPS = ((50, Action.WARN), (80, Action.WARN), (90, Action.WARN), (100, Action.HOLD))


def a_budget(*steps: tuple[int, Action], **changes: Any) -> AccountBudget:
    """Return a budget of 100 USD a month for the account vision."""
    budget = AccountBudget(
        name="vision-month",
        account="vision",
        usd=Decimal(100),
        kind=PeriodKind.MONTH,
        steps=tuple(BudgetStep(*step) for step in steps or STEPS),
    )
    return replace(budget, **changes)


def a_config(*budgets: AccountBudget, **changes: Any) -> BudgetsConfig:
    """Return these budgets, or one; `vision` has the account `vision-lab` below it."""
    given = budgets or (a_budget(),)
    config = BudgetsConfig(
        budgets={item.name: item for item in given},
        families={item.account: frozenset({item.account, f"{item.account}-lab"}) for item in given},
        on_demand=("batch",),
        folder="/nowhere",
    )
    return replace(config, **changes)


def a_memory(usd: str = "0", account: str = "vision", **changes: Any) -> Memory:
    """Return a memory in which the account spent so much today."""
    memory = Memory(
        measured_from=NOVEMBER,
        measured_until=NOW,
        days={account: {TODAY: Decimal(usd)}},
    )
    return replace(memory, **changes)


def a_job(number: int = 7, **changes: Any) -> BilledJob:
    """Return a running job of one dollar an hour.

    It has one node, and an hour left.
    """
    job = BilledJob(
        id=number,
        account="vision",
        states=frozenset({"RUNNING"}),
        partitions=("batch",),
        nodes=(f"gpu-{number:03}",),
        begin=NOW - 3600,
        end=NOW + 3600,
        usd_per_hour=Decimal(1),
        may_requeue=True,
    )
    return replace(job, **changes)


def a_waiting_job(number: int = 8, **changes: Any) -> BilledJob:
    """Return a job that waits for the budget."""
    states = frozenset({"PENDING"})
    return a_job(
        number, states=states, nodes=(), begin=0.0, reason="AssocGrpBillingMinutes", **changes
    )


def limits(account: str = "vision", **changes: Any) -> AccountLimits:
    return replace(AccountLimits(account, used=0, running=0), **changes)


def snapshot(*jobs: BilledJob, **changes: Any) -> BudgetSnapshot:
    """Return a Slurm with these jobs, in which nothing is limited yet."""
    given: dict[str, Any] = {
        "now": NOW,
        "config": a_config(),
        "memory": a_memory(),
        "limits": {"vision": limits()},
        "denied": {"batch": frozenset(), "spot": frozenset()},
        **changes,
    }
    return BudgetSnapshot(jobs=jobs, **given)
