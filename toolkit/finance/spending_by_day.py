"""The cost of accounts and projects on each day of a report. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from toolkit.accounting.days import day_of
from toolkit.accounting.money import usd
from toolkit.finance.charges_by_day import charges_by_day

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.accounting.report import Report


@dataclass(frozen=True, slots=True)
class DaySpending:
    """The cost of one account's jobs of one project on one UTC day."""

    account: str
    """Empty: no account caused it."""
    project: str
    day: str
    micro: int


PART_LENGTH: Final = 16_000
"""Characters: a command of SSM has 64 KiB for all of its parameters, encoded."""


@dataclass(frozen=True, slots=True)
class MonthSpending:
    """All that was spent on a month's closed days."""

    first: str
    last: str
    costs: tuple[DaySpending, ...]

    def parts(self, length: int = PART_LENGTH) -> Iterator[MonthSpending]:
        """Yield the days in parts that fit into a command.

        A part has one day at least.
        """
        by_day: dict[str, list[DaySpending]] = defaultdict(list)
        for item in self.costs:
            by_day[item.day].append(item)
        part = MonthSpending(self.first, self.first, ())
        day, last = date.fromisoformat(self.first), date.fromisoformat(self.last)
        while day <= last:
            name = f"{day:%Y-%m-%d}"
            longer = replace(part, last=name, costs=(*part.costs, *by_day[name]))
            if part.costs and len(longer.as_text()) > length:
                yield part
                longer = MonthSpending(name, name, tuple(by_day[name]))
            part, day = longer, day + timedelta(days=1)
        yield part

    def as_text(self) -> str:
        """Return it as slurm-budget reads it."""
        costs = [
            [item.account, item.project, item.day, f"{usd(item.micro):f}"] for item in self.costs
        ]
        return json.dumps({"first": self.first, "last": self.last, "costs": costs})


def month_spending(report: Report) -> MonthSpending:
    """Return all days of a month's report."""
    first, last = (day_of(at) for at in (report.window.since, report.window.until - 1))
    return MonthSpending(f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}", spending_by_day(report))


def spending_by_day(report: Report) -> tuple[DaySpending, ...]:
    """Return the days of a report.

    They sum to what its statements charge. Corrections that a month books are on its
    first day. Unknown amounts are in no sum.
    """
    sums: dict[tuple[str, str, str], int] = defaultdict(int)
    for part in charges_by_day(report):
        key = part.charge.attempt
        attempt = None if key is None else report.attempts[key]
        names = ("", "") if attempt is None else (attempt.account, attempt.project)
        if part.charge.price_known:
            sums[(*names, f"{part.day:%Y-%m-%d}")] += part.micro
    first = f"{day_of(report.window.since):%Y-%m-%d}"
    for item in report.period.corrections if report.period else ():
        sums[item.account, item.project, first] += item.micro
    return tuple(DaySpending(*key, micro) for key, micro in sorted(sums.items()))
