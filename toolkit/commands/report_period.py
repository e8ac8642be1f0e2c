"""The report of a period that a person named, and what cluster.yaml adds to any report."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from toolkit.accounting import attempt_names, periods, roll_up
from toolkit.accounting.allocation import Window
from toolkit.accounting.days import day_of
from toolkit.accounting.export import money
from toolkit.bill.history import NO_BILLS
from toolkit.commands.period_options import own_user, periods_of
from toolkit.commands.report_closed import made_report
from toolkit.output import table
from toolkit.statements import log
from toolkit.statements.errors import StatementsError
from toolkit.statements.settings import settings_of
from toolkit.statements.states import State, history
from toolkit.usage.cluster_store import cluster_folder
from toolkit.usage.summed_report import with_projects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from toolkit.accounting.cloudtrail import Trail
    from toolkit.accounting.periods import Period
    from toolkit.accounting.report import Report
    from toolkit.config import ClusterConfig
    from toolkit.head_runner import Runner
    from toolkit.statements.copies import PeriodCopy
    from toolkit.statements.settings import StatementSettings


@dataclass(frozen=True, slots=True)
class Wanted:
    """The report that a person asked for."""

    seconds: tuple[int, int]
    period: Period | None = None
    trail: Trail | None = None
    anew: bool = False
    needs_head: bool = False
    sums_suffice: bool = False
    """The report is read before its block ends: SQL makes its charges when they are asked for."""
    stored_only: bool = False
    """Neither AWS nor the head is asked for days that are not closed."""

    @property
    def month(self) -> Period | None:
        """Return the month that was asked for, if its days are one."""
        if self.period is None or not self.period.is_month:
            return None
        return periods.month_of(self.period.first)

    @property
    def computing_option(self) -> str | None:
        """Return the option that computes a closed month anew, if any."""
        if self.anew:
            return "--anew"
        if self.trail is not None:
            return "--cloudtrail"
        return "--record-mlflow" if self.needs_head else None


def named(text: str | None, now: datetime) -> Period | None:
    """Return the period that a person named, if one.

    Raises PeriodInvalid and UsageError.
    """
    if text is None:
        return None
    context = click.get_current_context()
    given = {context.get_parameter_source(name) for name in ("since", "until")}
    if given & {ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT}:
        raise click.UsageError("--period has both ends: leave --since and --until away")
    return periods.parse(text, now.date())


def seconds(period: Period, now: datetime) -> tuple[int, int]:
    """Return the ends of a period; it ends now at the latest."""
    window = period.window
    return window.since, min(window.until, int(now.timestamp()))


@contextmanager
def made(
    config_path: Path | None, config: ClusterConfig, wanted: Wanted, now: datetime
) -> Iterator[tuple[Report, Runner | None]]:
    """Yield the report, and the head if known.

    A closed month is printed as it was closed, and nobody is asked.
    """
    month = wanted.month
    is_computed = month is None or wanted.computing_option is not None
    cluster = None if is_computed else periods_of(config, now, NO_BILLS)
    if cluster is not None and month is not None and month.name in cluster.closed:
        if wanted.sums_suffice:
            with cluster.printed(month) as report:
                yield report, None
        else:
            yield cluster.report(month), None
        return
    making = made_report(
        config_path,
        config,
        Window(*wanted.seconds),
        int(now.timestamp()),
        trail=wanted.trail,
        anew=wanted.anew,
        needs_head=wanted.needs_head,
        sums_suffice=wanted.sums_suffice,
        stored_only=wanted.stored_only,
    )
    with making as (computed, head):
        part = None if cluster is None or month is None else cluster.open_part(month)
        report = replace(computed, period=part)
        yield with_projects(report, settings_of(config).projects), head


def live_lines(config: ClusterConfig, wanted: Wanted) -> tuple[str, ...]:
    """Return words on closed months that a report computes.

    They are for standard error. A log that can't be read costs no report.
    """
    option, month = wanted.computing_option, wanted.month
    try:
        records = history(log.read(cluster_folder(config.cluster) / log.FILE))
    except StatementsError as error:
        return (f"closed months: {error.message}",)
    since, until = wanted.seconds
    names = [
        name
        for name, record in sorted(records.items())
        if record.is_closed and _overlaps(periods.month_named(name), since, until)
    ]
    if not names or (month is not None and option is None):
        return ()
    if month is not None:
        words = f"{month.name} is closed, and {option} computes it anew"
        return (f"{words}: these figures are not those of its closing.",)
    words = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} closed"
    copy = f"`toolkit report --period {names[-1]}` prints the copy."
    return (f"{words}: these figures are what is known now, not those of the closing. {copy}",)


def _overlaps(month: Period, since: int, until: int) -> bool:
    return month.window.since < until and since < month.window.until


def before(
    window: Window,
    *,
    config_path: Path | None,
    config: ClusterConfig,
    wanted: Wanted,
    now: datetime,
    report: Report,
) -> Report:
    """Return the report of the period before another report's, for its trends.

    A month is taken as it was closed. For a closed month nobody is asked: it was closed with what
    this computer has. Raises ToolkitError.
    """
    month = periods.month_of(day_of(window.since))
    is_whole = (month.window.since, month.window.until) == (window.since, window.until)
    earlier = replace(
        wanted,
        seconds=(window.since, window.until),
        period=month if is_whole else None,
        needs_head=False,
        sums_suffice=False,
        stored_only=_is_closed(report),
    )
    with made(config_path, config, earlier, now) as (found, _):
        return found


def account_tags(
    config: ClusterConfig, report: Report, names: str, now: datetime
) -> dict[str, dict[str, str]]:
    """Return the facts of accounts as tags.

    Addresses of owners are in it where all names are.
    """
    return _settings(config, report, now).account_tags(owners=_has_owners(names))


def roll_up_of(config: ClusterConfig, report: Report, names: str, now: datetime) -> RollUp:
    """Return what a roll-up needs, with owners where all names are."""
    return RollUp(_settings(config, report, now), has_owners=_has_owners(names))


def _settings(config: ClusterConfig, report: Report, now: datetime) -> StatementSettings:
    """Return the facts of accounts.

    A closed month's are those of its closing.
    """
    copy = copy_of(config, report, now)
    return settings_of(config) if copy is None else copy.facts.settings


def _has_owners(names: str) -> bool:
    return attempt_names.Names(names) is attempt_names.Names.ALL


def copy_of(config: ClusterConfig, report: Report, now: datetime) -> PeriodCopy | None:
    """Return the copy that a report was printed from.

    Only a closed month has one.
    """
    if report.period is None or not _is_closed(report):
        return None
    return periods_of(config, now, NO_BILLS).closed[report.period.name]


def _is_closed(report: Report) -> bool:
    return report.period is not None and report.period.state == State.CLOSED.value


def with_names(report: Report, names: str) -> Report:
    """Return the report with the names that a person wants."""
    return attempt_names.with_names(report, attempt_names.Names(names), own_user())


@dataclass(frozen=True, slots=True)
class RollUp:
    """The facts of accounts by which those below are added to those above."""

    settings: StatementSettings
    has_owners: bool

    def as_json(self, report: Report) -> list[dict[str, Any]]:
        """Return the accounts with those below them, and their owners."""
        return [
            {
                "account": row.account,
                "parent": self.settings.account(row.account).parent,
                "depth": row.depth,
                "owner": self._owner(row) or None,
                "cost_centre": self.settings.account(row.account).cost_centre or None,
                "usd": money(row.own),
                "usd_with_below": money(row.with_below),
            }
            for row in self._rows(report)
        ]

    def as_text(self, report: Report) -> str:
        """Return the table of accounts with those below them."""
        rows = [
            (
                f"{'. ' * row.depth}{row.account}",
                self._owner(row) or "-",
                self.settings.account(row.account).cost_centre or "-",
                money(row.own),
                money(row.with_below),
            )
            for row in self._rows(report)
        ]
        return table(("account", "owner", "cost centre", "USD", "with those below"), rows)

    def _owner(self, row: roll_up.RolledUp) -> str:
        return self.settings.account(row.account).owner if self.has_owners else ""

    def _rows(self, report: Report) -> tuple[roll_up.RolledUp, ...]:
        parents = {item.name: item.parent for item in self.settings.accounts.values()}
        return roll_up.roll_up(report, parents)
