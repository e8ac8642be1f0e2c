"""Plan the limits of accounts that hold them to their budgets. Pure.

Slurm starts a job only if its whole time limit fits into GrpTRESMins beside what is used and what
running jobs may still use (`safe`). So the limit is: used, plus running, plus what is free. A job
that ends early gives its rest back in Slurm itself, without a pass. Accounts of one budget divide
what is free.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.budgets.figures import CENT
from slurmplugins.budgets.memory import Saved
from slurmplugins.config.budgets import Action
from slurmplugins.model.account_limits import UNITS_PER_USD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slurmplugins.budgets.figures import Figures
    from slurmplugins.budgets.plan import BudgetSnapshot
    from slurmplugins.model.account_limits import AccountLimits

TOLERANCE: Final = Decimal("0.001")
"""The share of a budget by which a limit may be off. Each change is a row in slurmdbd for ever."""
GROUP: Final = "GrpTRESMins=billing"
RUN: Final = "GrpTRESRunMins=billing"
SUBMIT: Final = "GrpSubmitJobs"


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A limit of an account; `value` None removes it."""

    account: str
    setting: str
    """Such as GrpTRESMins=billing."""
    value: int | None
    why: str
    raises: bool
    """It gives the account more than Slurm lets it use now."""
    budget: str | None
    """The name of the account's budget, if any."""

    @property
    def fields(self) -> dict[str, Any]:
        """Return the change as values for a log line and for JSON."""
        return {
            "account": self.account,
            "setting": self.setting,
            "value": self.value,
            "why": self.why,
        }


def wanted_limit(share: int | None, limits: AccountLimits) -> int | None:
    """Return GrpTRESMins=billing for what is free; None for no limit."""
    return None if share is None else max(0, limits.used + limits.running + share)


def limit_changes(
    snapshot: BudgetSnapshot, by_account: Mapping[str, Figures], parts: Mapping[str, int | None]
) -> tuple[LimitChange, ...]:
    """Return the changes. Lower limits come first.

    So accounts of one budget have no more together while they are made.
    """
    changes = _changes_by_account(snapshot, by_account, parts)
    return tuple(sorted(changes, key=attrgetter("raises")))


def _changes_by_account(
    snapshot: BudgetSnapshot, by_account: Mapping[str, Figures], parts: Mapping[str, int | None]
) -> Iterator[LimitChange]:
    memory = snapshot.memory
    budget_accounts = Counter(item.budget.name for item in by_account.values())
    for name, limits in sorted(snapshot.limits.items()):
        item = by_account.get(name)
        target = None if item is None else wanted_limit(parts[name], limits)
        accounts = 1 if item is None else budget_accounts[item.budget.name]
        if (target is not None or name in memory.limited) and _differs(
            target, item, limits, accounts
        ):
            yield _change(name, GROUP, target, limits.group_minutes, item)
        holds = item is not None and item.holds
        saved = memory.held.get(name, Saved())
        if holds and limits.run_minutes != 0:
            yield _change(name, RUN, 0, limits.run_minutes, item)
        elif not holds and name in memory.held and limits.run_minutes != saved.run_minutes:
            yield _change(name, RUN, saved.run_minutes, limits.run_minutes, item)
        refuses = item is not None and Action.REFUSE in item.actions
        if refuses and limits.submissions != 0:
            yield _change(name, SUBMIT, 0, limits.submissions, item)
        elif not refuses and name in memory.refused and limits.submissions == 0:
            yield _change(name, SUBMIT, saved.submissions, limits.submissions, item)


def _change(
    account: str, setting: str, value: int | None, current: int | None, item: Figures | None
) -> LimitChange:
    raises = value is None or (current is not None and value > current)
    budget = None if item is None else item.budget.name
    return LimitChange(account, setting, value, _why(item), raises, budget)


def _differs(
    target: int | None, item: Figures | None, limits: AccountLimits, accounts: int
) -> bool:
    """Return whether Slurm's limit must be moved.

    So many `accounts` share the budget: together they may be off by its tolerance. Stale figures
    lower none. So of accounts that share a budget they raise none either. A limit that leaves
    nothing free needs no lower one.
    """
    current = limits.group_minutes
    if target is None or item is None:
        return target != current
    if item.stale and (accounts > 1 or current is None or target < current):
        return False
    if current is None:
        return True
    exhausted = limits.used + limits.running
    if target <= exhausted and current <= exhausted:
        return False
    # A waiting job needs its whole part, which may be smaller than a thousandth of the budget.
    needs_all = accounts > 1 and target > current
    tolerance = CENT if needs_all else max(CENT, item.usd * TOLERANCE / accounts)
    return abs(target - current) > tolerance * UNITS_PER_USD


def _why(item: Figures | None) -> str:
    if item is None:
        return "no budget"
    step = f"{item.step.percent} % {item.step.action.value}" if item.step else "below its steps"
    return f"{item.budget.name}: {step}"
