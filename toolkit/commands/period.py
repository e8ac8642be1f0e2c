"""`toolkit period`: months from open to final, each change by a person and in a log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import config_option, dry_run_option, json_option, load
from toolkit.commands.period_options import (
    month_argument,
    month_of,
    periods_of,
    reason_option,
    utc_now,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from toolkit.accounting.periods import Period
    from toolkit.statements.cluster_periods import ClusterPeriods
    from toolkit.statements.doubts import Doubt


@click.group("period", cls=SuggestingGroup)
def command() -> None:
    """Review and close months, and make them final.

    A closed month prints the same for ever. What comes to be known of it later is a correction,
    which the next open month books.
    """


def _opened(config_path: Path | None, text: str) -> tuple[ClusterPeriods, Period]:
    now = utc_now()
    return periods_of(load(config_path), now), month_of(text, now)


@command.command("list")
@config_option
@json_option
def list_command(*, config_path: Path | None, as_json: bool) -> None:
    """List the months, with their states and what they cost."""
    from toolkit.output import print_json, table
    from toolkit.statements import show

    cluster = periods_of(load(config_path), utc_now())
    rows = [show.month(cluster, period) for period in cluster.months()]
    if as_json:
        print_json({"cluster": cluster.settings.cluster, "periods": rows})
        return
    if not rows:
        click.echo("no day is closed yet: `toolkit usage close` closes them")
        return
    click.echo(table(show.MONTH_HEADERS, [show.month_cells(row) for row in rows]))


@command.command("review")
@config_option
@month_argument
@json_option
@dry_run_option
def review_command(*, config_path: Path | None, text: str, as_json: bool, dry_run: bool) -> None:
    """Begin the review of a month, and list its doubtful rows."""
    from toolkit.output import print_json
    from toolkit.statements import changes, show

    cluster, period = _opened(config_path, text)
    doubts = changes.review(cluster, period, dry_run=dry_run)
    approved = cluster.record(period).approved
    if as_json:
        rows = [show.doubt_json(item, approved.get(item.id)) for item in doubts]
        print_json({"period": period.name, "doubtful": rows})
        return
    click.echo(show.doubts_text(period, doubts, approved))


@command.command("approve")
@config_option
@month_argument
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="Approve all rows of the month.")
@reason_option
@json_option
@dry_run_option
def approve_command(
    *,
    config_path: Path | None,
    text: str,
    ids: tuple[str, ...],
    everything: bool,
    reason: str,
    as_json: bool,
    dry_run: bool,
) -> None:
    """Approve doubtful rows of a month in review, with the reason."""
    from toolkit.statements import changes

    if everything == bool(ids):
        raise click.UsageError("name rows by their ids, or give --all")
    cluster, period = _opened(config_path, text)
    rows = changes.approve(cluster, period, ids, reason, everything=everything, dry_run=dry_run)
    _print_approved(rows, as_json=as_json, dry_run=dry_run)


def _print_approved(rows: Iterable[Doubt], *, as_json: bool, dry_run: bool) -> None:
    from toolkit.output import plain, print_json

    if as_json:
        print_json({"approved": [item.id for item in rows], "dry_run": dry_run})
        return
    verb = "would approve" if dry_run else "approved"
    lines = [f"{verb} {item.id}: {plain(item.sentence)}" for item in rows]
    click.echo("\n".join(lines) or "nothing to approve: all of these are approved")


@command.command("close")
@config_option
@month_argument
@json_option
@dry_run_option
def close_command(*, config_path: Path | None, text: str, as_json: bool, dry_run: bool) -> None:
    """Close a month that was reviewed: its figures are then fixed."""
    from toolkit.accounting.export import money
    from toolkit.accounting.period_part import period_lines
    from toolkit.commands import report_facts
    from toolkit.output import plain
    from toolkit.statements import changes

    config, now = load(config_path), utc_now()
    cluster, period = periods_of(config, now), month_of(text, now)
    finance = partial(report_facts.to_keep, config_path=config_path, config=config, now=now)
    report = changes.close(cluster, period, finance=finance, dry_run=dry_run)
    part = report.period
    corrected = 0 if part is None else part.corrected_micro
    if as_json:
        _print_state(
            cluster,
            period,
            as_json=True,
            dry_run=dry_run,
            usd=money(report.net),
            corrections_usd=money(corrected),
        )
        return
    verb = "would close" if dry_run else "closed"
    click.echo(f"{verb} {period.name}: {money(report.net)} USD")
    for line in period_lines(part, report.net)[1:]:
        click.echo(plain(line))


@command.command("reopen")
@config_option
@month_argument
@reason_option
@json_option
@dry_run_option
def reopen_command(
    *, config_path: Path | None, text: str, reason: str, as_json: bool, dry_run: bool
) -> None:
    """Open a closed month again, with the reason."""
    from toolkit.statements import changes

    cluster, period = _opened(config_path, text)
    changes.reopen(cluster, period, reason, dry_run=dry_run)
    _print_state(cluster, period, as_json=as_json, dry_run=dry_run)


@command.command("finalize")
@config_option
@month_argument
@click.option("--without-bill", default="", metavar="TEXT", help="Why AWS's bill is not needed.")
@json_option
@dry_run_option
def finalize_command(
    *, config_path: Path | None, text: str, without_bill: str, as_json: bool, dry_run: bool
) -> None:
    """Make a closed month final.

    AWS's bill of all its days must be.
    """
    from toolkit.statements import changes

    cluster, period = _opened(config_path, text)
    changes.finalize(cluster, period, without_bill=without_bill.strip(), dry_run=dry_run)
    _print_state(cluster, period, as_json=as_json, dry_run=dry_run)


@command.command("log")
@config_option
@json_option
def log_command(*, config_path: Path | None, as_json: bool) -> None:
    """Print all changes of months: who made them, when and why."""
    from toolkit.output import print_json
    from toolkit.statements import log, show

    cluster = periods_of(load(config_path), utc_now())
    entries = log.read(cluster.log_file)
    if as_json:
        print_json([show.entry_json(entry) for entry in entries])
        return
    lines = [line for entry in entries for line in show.entry_lines(entry)]
    click.echo("\n".join(lines) or "no month was ever reviewed")


def _print_state(
    cluster: ClusterPeriods, period: Period, *, as_json: bool, dry_run: bool, **more: Any
) -> None:
    """Print a month's state, as the log has it now."""
    from toolkit.output import print_json
    from toolkit.statements import log
    from toolkit.statements.states import PeriodRecord, history

    records = history(log.read(cluster.log_file))
    record = records.get(period.name, PeriodRecord(period.name))
    if as_json:
        print_json(
            {
                "period": period.name,
                "state": record.state.value,
                "revision": record.revision,
                "dry_run": dry_run,
                **more,
            }
        )
        return
    click.echo(f"{period.name} {'stays' if dry_run else 'is'} {record.state}")
