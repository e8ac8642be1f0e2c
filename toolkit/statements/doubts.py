"""The doubtful rows of a period: a person approves each before the period is closed. Pure."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.accounting.money import usd
from toolkit.accounting.phrases import day
from toolkit.statements.settings import ROOT
from toolkit.statements.uses import uses_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from toolkit.accounting.report import Report
    from toolkit.statements.settings import StatementSettings

_ID_LENGTH: Final = 8
_FOR_INFORMATION: Final = (
    "not billed in between",
    "EC2 may bill up to",
    "some closed days have another cost policy",
    "Slurm's own list of instances",  # what it may lack has a note of its own
)
"""Parts of notes that doubt no amount."""
_SHOWN_ELSEWHERE: Final = (
    "their cost is unknown",
    "set aside, cost unknown",
    "set aside, no cost is missing",
)
"""Parts of notes whose instances, jobs and records have rows of their own."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A doubtful row."""

    kind: str
    subject: str
    text: str

    @property
    def id(self) -> str:
        """Return its short name, the same while nothing of it changes."""
        content = f"{self.kind}\n{self.subject}\n{self.text}"
        return hashlib.sha256(content.encode("utf-8", errors="replace")).hexdigest()[:_ID_LENGTH]

    @property
    def sentence(self) -> str:
        """Return the row as the log has it."""
        return f"{self.kind}: {self.subject}: {self.text}" if self.subject else self.text


def doubts_of(report: Report, settings: StatementSettings) -> tuple[Doubt, ...]:
    """Return the doubtful rows of a month's report, each once."""
    found = (*_unknown(report), *_set_aside(report), *_notes(report), *_accounts(report, settings))
    return tuple(dict.fromkeys(found))


def missing_days(last: date) -> Doubt:
    """Return the row of a month that ends with open days."""
    text = (
        f"no day after {last} is closed: `toolkit usage close` closes what the records cover;"
        " those of a cluster that was destroyed end with it"
    )
    return Doubt("missing days", "", text)


def _unknown(report: Report) -> Iterator[Doubt]:
    for cost in report.costs:
        if cost.has_unknown:
            instance = report.instances[cost.instance_id]
            what = instance.instance_type or instance.kind.value
            yield Doubt("unknown cost", cost.instance_id, f"no price is known ({what})")
    for name in report.jobs_without_cost:
        yield Doubt("unknown cost", name, "no instance is known for its nodes")


def _set_aside(report: Report) -> Iterator[Doubt]:
    for item in report.set_aside:
        cost = "its cost is unknown" if item.has_unknown_cost else "no cost is missing"
        yield Doubt("set aside", item.name, f"{item.reason}; {cost}")


def _notes(report: Report) -> Iterator[Doubt]:
    """Yield the notes that doubt an amount.

    Among them are lives whose sources disagree, ends that nobody saw, and runaway jobs.
    """
    for note in report.notes:
        if not any(part in note for part in (*_FOR_INFORMATION, *_SHOWN_ELSEWHERE)):
            yield Doubt("doubtful", "", note)


def _accounts(report: Report, settings: StatementSettings) -> Iterator[Doubt]:
    """Yield accounts that cluster.yaml lacks, and cost that no grant covers."""
    spent: dict[str, int] = defaultdict(int)
    for use in uses_of(report):
        spent[use.account] += use.micro
    for name in sorted(spent):
        if settings.accounts and name not in settings.accounts and name not in {"", ROOT}:
            text = f"is not in cluster.yaml, so nobody owns its {usd(spent[name])} USD"
            yield Doubt("unknown account", name, text)
    for name, micro in sorted(outside_grants(report, settings).items()):
        grant = settings.accounts[name].grant
        assert grant is not None  # noqa: S101  # such an account has one
        text = (
            f"{usd(micro)} USD of jobs that started outside of its grant {grant.name},"
            f" {grant.since} to {grant.until}"
        )
        yield Doubt("grant", name, text)


def outside_grants(report: Report, settings: StatementSettings) -> dict[str, int]:
    """Return each account's cost of jobs outside of its grant.

    A job belongs to the day of its start.
    """
    found: dict[str, int] = defaultdict(int)
    for charge in report.charges():
        attempt = None if charge.attempt is None else report.attempts[charge.attempt]
        grant = None if attempt is None else settings.account(attempt.account).grant
        if attempt is None or grant is None:
            continue
        start = attempt.begun if attempt.started is None else attempt.started
        if not grant.covers(day(start)):
            found[attempt.account] += charge.micro
    return {name: micro for name, micro in found.items() if micro}
