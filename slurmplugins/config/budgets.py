"""The budgets' part of burst.json: what accounts and projects may cost, and what happens then."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import burst_part
from slurmplugins.errors import ConfigError
from slurmplugins.model.json_input import finite

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


KEY: Final = "budgets"
HIGHEST_USD: Final = 10**9
LEAST_USD: Final = Decimal("1e-30")
HIGHEST_PERCENT: Final = 200
LAST_SECOND: Final = 253_402_300_799.0
"""Of the year 9999. Later moments have no day."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}", re.ASCII)


class Action(StrEnum):
    """An action of a budget step. Each holds from its step on, until the period ends."""

    WARN = "warn"
    """Write it in the audit log, and tell the program of `notify`."""
    SPOT_ONLY = "spot-only"
    """No new job in partitions that may buy on demand."""
    HOLD = "hold"
    """No waiting job starts. Running jobs go on."""
    REQUEUE = "requeue"
    """As hold, and running batch jobs stop at once and wait."""
    REFUSE = "refuse"
    """As hold, and sbatch refuses new jobs."""


HOLDING: Final = frozenset({Action.HOLD, Action.REQUEUE, Action.REFUSE})
"""Actions from which on no job of the budget starts."""


class PeriodKind(StrEnum):
    """The time that an amount is for, in UTC."""

    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"
    GRANT = "grant"
    """From a first moment to a last one, once."""


@dataclass(frozen=True, slots=True)
class BudgetStep:
    """A share of the budget, and what is done from there on."""

    percent: int
    action: Action


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that accounts and projects may cost together in a period."""

    name: str
    accounts: tuple[str, ...]
    """Each with all accounts below it."""
    usd: Decimal
    kind: PeriodKind
    steps: tuple[BudgetStep, ...]
    since: float = 0.0
    """Epoch seconds of a grant's begin; before it, no limit holds."""
    until: float = 0.0
    """Epoch seconds of a grant's end; from it on, its last step holds."""
    projects: tuple[str, ...] = ()
    """In small letters, as slurmdbd keeps the key of `sbatch --wckey`."""
    notify: tuple[str, ...] = ()
    """The argv of a program that gets each reached step as JSON on standard input."""


@dataclass(frozen=True, slots=True)
class ListedWeights:
    """A partition's billing weights in slurm.conf, and the prices that they are made of."""

    weights: str
    usd_per_hour: Mapping[str, Decimal]
    """By pool: the price of its first offering."""


@dataclass(frozen=True, slots=True)
class BudgetsConfig:
    """All budgets of a cluster in US dollars."""

    budgets: Mapping[str, Budget] = field(default_factory=dict)
    families: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By account with a budget: the account itself and all accounts below it."""
    account_projects: Mapping[str, str] = field(default_factory=dict)
    """By account: the project of its jobs that name none."""
    on_demand: tuple[str, ...] = ()
    """Partitions that may buy on demand."""
    tail: float = 0.0
    """Seconds that an instance stays after its last job."""
    folder: str = ""
    """The folder of what was spent. It must outlive the head's instance."""
    weights: Mapping[str, ListedWeights] = field(default_factory=dict)
    """By partition whose billing weights follow what was bought."""

    def family(self, account: str) -> frozenset[str]:
        """Return the account and all accounts below it."""
        return self.families.get(account, frozenset({account}))

    def accounts_of(self, budget: Budget) -> frozenset[str]:
        """Return the budget's accounts with all accounts below them."""
        return frozenset().union(*(self.family(account) for account in budget.accounts))

    def project_of(self, account: str, wckey: str) -> str:
        """Return a job's project, as reports have it.

        It is "" if no budget is for it. Slurm marks a default key by an asterisk. A wckey is
        free text of users: projects without a budget would let the memory grow without end.
        """
        name = wckey.removeprefix("*").lower() or self.account_projects.get(account, "")
        return name if name in self.projects else ""

    @property
    def projects(self) -> frozenset[str]:
        """Return all projects that a budget is for."""
        return frozenset(name for item in self.budgets.values() for name in item.projects)


def load(path: Path) -> BudgetsConfig:
    """Read the budgets' part of burst.json. Raises ConfigError."""
    return parse(burst_part.read(path))


def parse(document: object) -> BudgetsConfig:
    """Return the budgets of a burst.json, or none.

    Raises ConfigError with the first problem: nothing is guessed where jobs are kept waiting.
    """
    part = burst_part.part_of(document, KEY)
    if part is None:
        return BudgetsConfig()
    try:
        return BudgetsConfig(
            budgets={str(name): _budget(str(name), item) for name, item in part["limits"].items()},
            families={
                str(name): frozenset(map(str, items)) for name, items in part["families"].items()
            },
            account_projects={str(k): str(v) for k, v in part["account_projects"].items()},
            on_demand=tuple(map(str, part["on_demand"])),
            tail=finite(part["tail"]),
            folder=str(part["folder"]),
            weights={str(name): _weights(item) for name, item in part["weights"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError, InvalidOperation) as error:
        text = f"burst.json: {KEY}: {type(error).__name__}: {str(error)[:120]}"
        raise ConfigError((text,)) from error


def _weights(item: Mapping[str, Any]) -> ListedWeights:
    prices = {str(pool): Decimal(str(usd)) for pool, usd in item["usd_per_hour"].items()}
    if not all(price.is_finite() for price in prices.values()):
        raise ValueError("expected US dollars")
    return ListedWeights(str(item["weights"]), prices)


def _budget(name: str, item: Mapping[str, Any]) -> Budget:
    usd = Decimal(str(item["usd"]))
    # 1e-999999999 is short here, and a gigabyte where it is printed.
    if not usd.is_finite() or not LEAST_USD <= usd <= HIGHEST_USD:
        raise ValueError(f"expected US dollars, found {item['usd']!r}")
    budget = Budget(
        name=_name(name),
        accounts=tuple(map(_name, item["accounts"])),
        projects=tuple(map(str, item["projects"])),
        usd=usd,
        kind=PeriodKind(item["period"]),
        steps=tuple(_step(step) for step in item["steps"]),
        since=_moment(item["since"]),
        until=_moment(item["until"]),
        notify=tuple(map(str, item["notify"])),
    )
    if not budget.steps or not (budget.accounts or budget.projects):
        raise ValueError(f"budget {name}: expected steps, and an account or a project")
    return budget


def _step(item: Mapping[str, Any]) -> BudgetStep:
    percent = int(finite(item["at"]))
    if not 1 <= percent <= HIGHEST_PERCENT:
        raise ValueError(f"expected 1 to {HIGHEST_PERCENT} percent, found {percent}")
    return BudgetStep(percent, Action(item["do"]))


def _moment(value: object) -> float:
    at = finite(value)
    if not 0 <= at <= LAST_SECOND:
        raise ValueError(f"not a moment: {at}")
    return at


def _name(value: object) -> str:
    if not (isinstance(value, str) and _NAME.fullmatch(value)):
        raise ValueError(f"not a name of cluster.yaml: {value!r}")
    return value


def to_json(config: BudgetsConfig) -> dict[str, Any]:
    """Return the part as burst.json has it."""
    return {
        "limits": {
            name: {
                "accounts": list(item.accounts),
                "projects": list(item.projects),
                "usd": f"{item.usd:f}",
                "period": item.kind.value,
                "steps": [{"at": step.percent, "do": step.action.value} for step in item.steps],
                "since": item.since,
                "until": item.until,
                "notify": list(item.notify),
            }
            for name, item in config.budgets.items()
        },
        "families": {name: sorted(items) for name, items in config.families.items()},
        "account_projects": dict(config.account_projects),
        "on_demand": list(config.on_demand),
        "tail": config.tail,
        "folder": config.folder,
        "weights": {
            name: {
                "weights": item.weights,
                "usd_per_hour": {pool: f"{usd:f}" for pool, usd in item.usd_per_hour.items()},
            }
            for name, item in config.weights.items()
        },
    }
