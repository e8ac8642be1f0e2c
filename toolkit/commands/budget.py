"""`toolkit budget`: what accounts may cost, and the limits in Slurm that hold them to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import (
    config_option,
    dry_run_option,
    find_config_file,
    json_option,
    load,
)
from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from toolkit.budgets.facts import BudgetFacts, BudgetFigures, NotApplied
    from toolkit.config import ClusterConfig
    from toolkit.finance.spending_by_day import MonthSpending

HEADERS = (
    *("BUDGET", "FOR", "UNTIL", "USD", "SPENT", "COMMITTED", "FREE", "FORECAST", "STEP"),
    "SINCE",
)


class BudgetsDiffer(ToolkitError):  # noqa: N818 - the names of ToolkitError tell the event
    """The head has other budgets than cluster.yaml."""

    reason = "budgets-differ"


@click.group("budget", cls=SuggestingGroup)
def command() -> None:
    """Show what accounts and projects may cost, and hold them to it."""


@command.command("status")
@config_option
@json_option
def status_command(*, config_path: Path | None, as_json: bool) -> None:
    """List the budgets: spent, committed, forecast, and the step."""
    from toolkit.output import plain, print_json

    answer = _facts(load(config_path))
    if as_json:
        print_json(
            {
                "at": answer.at,
                "measured_from": answer.measured_from,
                "measured_until": answer.measured_until,
                "closed_until": answer.closed_until or None,
                "budgets": answer.budgets,
                "problems": answer.problems,
            }
        )
        return
    _print_figures(answer)
    for problem in answer.problems:
        click.echo(plain(f"problem: {problem}"), err=True)


@command.command("plan")
@config_option
@json_option
def plan_command(*, config_path: Path | None, as_json: bool) -> None:
    """Show each budget, and the next pass's changes in Slurm.

    Where cluster.yaml has other budgets than the head, it is the plan after `toolkit apply`:
    nothing is changed before.
    """
    from toolkit.output import plain, print_json

    answer, missing = _planned_facts(_dated(config_path))
    if as_json:
        print_json(
            {
                "budgets": answer.budgets,
                "changes": answer.changes,
                "problems": answer.problems,
                "not_applied": missing,
            }
        )
        return
    _print_figures(answer)
    _print_changes(answer)
    if missing:
        click.echo(
            plain(
                f"note: the head has other budgets than cluster.yaml ({missing}), so this is the"
                " plan after `toolkit apply`"
            )
        )


@command.command("apply")
@config_option
@dry_run_option
def apply_command(*, config_path: Path | None, dry_run: bool) -> None:
    """Make a pass now, instead of within the next minute.

    The head has the budgets of the last `toolkit apply`.
    """
    from toolkit.budgets.facts import PASS_SECONDS, PROGRAM
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected

    answer = _checked_facts(config_path)
    _print_changes(answer)
    if dry_run or not answer.changes:
        return
    config = load(config_path)
    with connected(config) as clients:
        Head(clients, config).run(PROGRAM, timeout=PASS_SECONDS)
    click.echo("budget: Slurm has these limits now")


@command.command("close-days")
@config_option
@json_option
@dry_run_option
def close_days_command(*, config_path: Path | None, as_json: bool, dry_run: bool) -> None:
    """Give the head the cost of closed days.

    It takes the place of the head's own measure. It is what the statements charge before
    discounts: with refunds, minimum charges, storage and corrections. Days come from this
    computer's store; `toolkit usage close` fills it.
    """
    from toolkit.accounting.money import usd
    from toolkit.output import print_json

    config = load(config_path)
    months, answer = _closed_months(config)
    if not dry_run:
        answer = _give(config, months)
    if as_json:
        print_json({"months": months, "budgets": answer.budgets, "dry_run": dry_run})
        return
    for item in months:
        whole = usd(sum(cost.micro for cost in item.costs))
        words = f"{item.first} to {item.last}: {whole:.2f} USD"
        click.echo(f"{'would be: ' if dry_run else ''}{words}")
    if not months:
        click.echo("budget: no day of a budget's period is closed: `toolkit usage close`")
    elif not dry_run:
        _print_figures(answer)


def _closed_months(config: ClusterConfig) -> tuple[tuple[MonthSpending, ...], BudgetFacts]:
    """Return the closed days of the budgets' periods, month by month."""
    from toolkit.bill.history import NO_BILLS
    from toolkit.commands.period_options import periods_of
    from toolkit.finance.spending_by_day import month_spending

    answer = _facts(config)
    begin = min((item.begin for item in answer.budgets), default=answer.at)
    cluster = periods_of(config, answer.at, NO_BILLS)
    return tuple(
        month_spending(cluster.report(month))
        for month in cluster.months()
        if month.window.until > begin.timestamp() and cluster.has_closed_days(month)
    ), answer


def _give(config: ClusterConfig, months: tuple[MonthSpending, ...]) -> BudgetFacts:
    """Give the head these days, and make a pass."""
    from toolkit.budgets.facts import PASS_SECONDS, PROGRAM, fetch
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected

    with connected(config) as clients:
        head = Head(clients, config)
        for month in months:
            for part in month.parts():
                head.run([*PROGRAM, "close-days", part.as_text()], timeout=PASS_SECONDS)
        head.run(PROGRAM, timeout=PASS_SECONDS)
        return fetch(head)


def _until(_ctx: click.Context, _param: click.Parameter, text: str | None) -> datetime | None:
    """Parse an end: a day, a moment, or a time from now."""
    import re
    from datetime import UTC, datetime, timedelta

    from toolkit.commands.moments import UNITS, moment

    if text is not None and re.fullmatch(r"[1-9]\d{0,3}[smhdw]", text, re.ASCII):
        return datetime.now(UTC) + timedelta(**{UNITS[text[-1]]: int(text[:-1])})
    return moment(_ctx, _param, text)


@command.command("override")
@config_option
@dry_run_option
@click.option("--usd", metavar="USD", help="Add US dollars to the budget.")
@click.option("--lift", is_flag=True, help="Let no step of the budget hold.")
@click.option("--end", is_flag=True, help="End the override that there is.")
@click.option(
    "--until",
    callback=_until,
    metavar="TIME",
    help="Its end: 2026-12-01, or from now: 90m, 3d, 2w.",
)
@click.option("--reason", metavar="TEXT", help="Why, for the audit log.")
@click.argument("name", metavar="BUDGET")
def override_command(
    *,
    config_path: Path | None,
    dry_run: bool,
    usd: str | None,
    lift: bool,
    end: bool,
    until: datetime | None,
    reason: str | None,
    name: str,
) -> None:
    """Make an exception from one budget, with an end.

    A pass follows at once: waiting jobs may start.
    """
    from toolkit.budgets.facts import PASS_SECONDS, PROGRAM
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected
    from toolkit.output import plain

    if [usd is not None, lift, end].count(True) != 1:
        raise click.UsageError("give one of --usd, --lift and --end")
    config = load(config_path)
    if name not in config.budgets:
        known = ", ".join(sorted(config.budgets)) or "none"
        raise click.UsageError(f"cluster.yaml has no budget {name!r}; it has {known}")
    words = ["end-override", name] if end else _override_words(name, usd, until, reason)
    what = "no override" if end else f"{'no step holds' if lift else f'{usd} USD more'}"
    ending = f" until {until:%Y-%m-%d %H:%M} UTC" if until and not end else ""
    if not dry_run:
        with connected(config) as clients:
            head = Head(clients, config)
            head.run([*PROGRAM, *words], timeout=PASS_SECONDS)
            head.run(PROGRAM, timeout=PASS_SECONDS)
    click.echo(plain(f"{'would be: ' if dry_run else ''}budget {name}: {what}{ending}"))


def _override_words(
    name: str, usd: str | None, until: datetime | None, reason: str | None
) -> list[str]:
    import getpass
    from datetime import UTC, datetime
    from decimal import Decimal, InvalidOperation

    from slurmplugins.budgets.overrides import parse_override
    from slurmplugins.budgets.printing import LIFTED
    from slurmplugins.errors import BadName

    now = datetime.now(UTC)
    if until is None or not reason:
        raise click.UsageError("an override needs --until and --reason")
    if until <= now:
        raise click.UsageError(f"--until {until:%Y-%m-%d %H:%M} is not in the future")
    try:
        is_amount = usd is None or (Decimal(usd).is_finite() and Decimal(usd) > 0)
    except InvalidOperation:
        is_amount = False
    if not is_amount:
        raise click.UsageError(f"--usd {usd!r}: expected US dollars above 0")
    by = getpass.getuser()
    words = (usd or LIFTED, str(int(until.timestamp())), by, reason)
    try:
        parse_override(*words, now.timestamp())  # as the head will: a dry run says what it takes
    except BadName as error:
        raise click.UsageError(str(error)) from error
    return ["override", name, *words]


def _facts(config: ClusterConfig) -> BudgetFacts:
    from toolkit.budgets.facts import fetch
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected

    with connected(config) as clients:
        return fetch(Head(clients, config))


def _planned_facts(config: ClusterConfig) -> tuple[BudgetFacts, NotApplied]:
    """Return the plan of cluster.yaml's budgets, and those not applied."""
    from toolkit.budgets.facts import fetch, fetch_with, not_applied
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected
    from toolkit.render.budgets import file_json, plan_json

    with connected(config) as clients:
        head = Head(clients, config)
        answer = fetch(head)
        missing = not_applied(file_json(config), answer.config)
        return (fetch_with(head, plan_json(config)) if missing else answer), missing


def _checked_facts(config_path: Path | None) -> BudgetFacts:
    """Return the head's facts, if its budgets are cluster.yaml's and of today.

    Raises ConfigInvalid or BudgetsDiffer.
    """
    from toolkit.render.budgets import limits_json

    config = _dated(config_path)
    answer = _facts(config)
    if answer.limits != limits_json(config):
        raise BudgetsDiffer(
            "the head has other budgets than cluster.yaml",
            next_step="run `toolkit apply`; `toolkit budget plan` shows what they will do",
        )
    return answer


def _dated(config_path: Path | None) -> ClusterConfig:
    """Return cluster.yaml.

    Raises ConfigInvalid, also for a grant that is not of today.
    """
    from datetime import UTC, datetime

    from toolkit.config import load_dated

    config = load(config_path)
    load_dated(find_config_file(config_path), datetime.now(UTC))
    return config


def _print_figures(answer: BudgetFacts) -> None:
    from slurmplugins.budgets.printing import LIFTED
    from toolkit.output import plain, table

    if not answer.budgets:
        click.echo("no budget: cluster.yaml has no `budgets`, or it is not applied yet")
        return
    click.echo(table(HEADERS, [_row(item) for item in answer.budgets]))
    for item in answer.budgets:
        if item.override is not None:
            usd = item.override.usd
            what = "no step holds" if usd == LIFTED else f"{usd} USD more"
            click.echo(
                plain(
                    f"{item.name}: {what} until {item.override.until:%Y-%m-%d %H:%M} UTC, by"
                    f" {item.override.by}: {item.override.reason}"
                )
            )
    for item in answer.budgets:
        if item.ended:
            click.echo(
                f"{item.name}: the grant ended on {item.end:%Y-%m-%d} and pays no job; renew it in"
                " cluster.yaml, or remove it"
            )
    if answer.closed_until:
        click.echo(
            f"SPENT is the report's until {answer.closed_until}, and the head's own measure since"
        )
    if any(item.stale for item in answer.budgets):
        known = answer.measured_until
        until = f"{known:%Y-%m-%d %H:%M} UTC" if known else "never"
        click.echo(f"stale: spending is known until {until}; no new step is taken")


def _row(item: BudgetFigures) -> tuple[str, ...]:
    actions = "+".join(item.actions) or "-"
    return (
        item.name,
        ", ".join((*item.accounts, *(f"project {name}" for name in item.projects))),
        f"{item.end:%Y-%m-%d}",
        f"{item.usd:.2f}",
        f"{item.usd_spent:.2f}",
        f"{item.usd_committed:.2f}",
        "-" if item.usd_free is None else f"{item.usd_free:.2f}",
        f"{item.usd_forecast:.2f}",
        "-" if item.step is None else f"{item.step} % {actions}",
        "-" if item.since is None else f"{item.since:%Y-%m-%d %H:%M}",
    )


def _print_changes(answer: BudgetFacts) -> None:
    from toolkit.output import plain

    for item in answer.changes:
        click.echo(plain(f"~ {item.subject}: {item.setting} → {item.value} ({item.why})"))
    for problem in answer.problems:
        click.echo(plain(f"problem: {problem}"), err=True)
    if not answer.changes:
        click.echo("budget: nothing to change")
