"""Closed days: what a report says of them takes the place of the head's own measure. Pure.

The head knows neither refunds, minimum charges, storage nor corrections. An admin's computer knows
them for the days that it has closed, and tells the head.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.budgets.overrides import HIGHEST_USD
from slurmplugins.errors import BadName
from slurmplugins.model import json_input

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmplugins.budgets.memory import Memory
    from slurmplugins.config.budgets import BudgetsConfig

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class DayCost:
    """The cost of one account's jobs of one project on one day; no account: nobody's."""

    account: str
    project: str
    day: str
    usd: Decimal


@dataclass(frozen=True, slots=True)
class ClosedDays:
    """All that was spent from one day to another, both included."""

    first: str
    last: str
    costs: tuple[DayCost, ...]


def parse(text: str) -> ClosedDays:
    """Read `{"first": DAY, "last": DAY, "costs": [[ACCOUNT, PROJECT, DAY, USD], …]}`.

    Raises BadName.
    """
    try:
        value = json_input.loads(text)
        closed = ClosedDays(
            str(value["first"]), str(value["last"]), tuple(_cost(item) for item in value["costs"])
        )
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise BadName(f"not closed days: {type(error).__name__}: {str(error)[:80]}") from error
    days = (closed.first, closed.last, *(item.day for item in closed.costs))
    if not all(_DAY.fullmatch(day) and closed.first <= day <= closed.last for day in days):
        raise BadName(f"not days from {closed.first[:10]!r} to {closed.last[:10]!r}")
    return closed


def _cost(item: Any) -> DayCost:
    account, project, day, usd = map(str, item)
    amount = Decimal(usd)
    if not amount.is_finite() or abs(amount) >= HIGHEST_USD:
        raise ValueError(f"expected US dollars, found {usd[:20]!r}")
    return DayCost(account, project, day, amount)


def with_closed_days(memory: Memory, config: BudgetsConfig, closed: ClosedDays) -> Memory:
    """Return the memory with these days as they were closed.

    May be repeated.
    """

    def without(days: Mapping[str, Decimal]) -> dict[str, Decimal]:
        return {day: usd for day, usd in days.items() if not closed.first <= day <= closed.last}

    accounts = defaultdict(dict, {name: without(days) for name, days in memory.days.items()})
    projects: dict[str, defaultdict[str, dict[str, Decimal]]] = {
        name: defaultdict(dict, {account: without(days) for account, days in items.items()})
        for name, items in memory.projects.items()
    }
    nobody = without(memory.nobody)
    for item in closed.costs:
        project = config.project_of(item.account, item.project)
        places = [accounts[item.account] if item.account else nobody]
        if project in projects and item.account:
            places.append(projects[project][item.account])
        for days in places:
            days[item.day] = days.get(item.day, Decimal(0)) + item.usd
    return replace(
        memory,
        days=dict(accounts),
        projects={name: dict(items) for name, items in projects.items()},
        nobody=nobody,
        closed_until=max(memory.closed_until, closed.last),
    )
