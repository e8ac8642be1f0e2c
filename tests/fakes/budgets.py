"""Accounts, budgets and a Slurm with limits, from which the budgets' tests start."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from slurmplugins.budgets.memory import Memory
from slurmplugins.budgets.plan import BudgetSnapshot
from slurmplugins.config.budgets import (
    Action,
    Budget,
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


def a_budget(*steps: tuple[int, Action], **changes: Any) -> Budget:
    """Return a budget of 100 USD a month for the account vision."""
    budget = Budget(
        name="vision-month",
        accounts=("vision",),
        usd=Decimal(100),
        kind=PeriodKind.MONTH,
        steps=tuple(BudgetStep(*step) for step in steps or STEPS),
    )
    return replace(budget, **changes)


def a_config(*budgets: Budget, **changes: Any) -> BudgetsConfig:
    """Return these budgets, or one; `vision` has the account `vision-lab` below it."""
    given = budgets or (a_budget(),)
    config = BudgetsConfig(
        budgets={item.name: item for item in given},
        families={
            name: frozenset({name, f"{name}-lab"}) for item in given for name in item.accounts
        },
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
    given: dict[str, Any] = {"reason": "AssocGrpBillingMinutes", **changes}
    return a_job(number, states=states, nodes=(), begin=0.0, **given)


def a_job_of_a_project(number: int = 8, usd: str | None = "1", **changes: Any) -> BilledJob:
    """Return a waiting job of the project `imagenet`.

    Its account has no budget.
    """
    given: dict[str, Any] = {
        "account": "language",
        "wckey": "ImageNet",
        "reason": "Resources",
        "usd_until_limit": None if usd is None else Decimal(usd),
        **changes,
    }
    return a_waiting_job(number, **given)


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
