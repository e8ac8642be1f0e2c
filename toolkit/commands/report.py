"""`toolkit report`: the cost of the cluster, by account, user, project and more."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands import report_files
from toolkit.commands.moments import period, since_option, until_option
from toolkit.commands.options import check_format, config_option, json_option, load_any
from toolkit.commands.period_options import names_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.accounting.cloudtrail import Trail
    from toolkit.accounting.report import Key, Report
    from toolkit.commands.report_period import RollUp, Wanted
    from toolkit.config import ClusterConfig
    from toolkit.finance.facts import FinanceFacts
    from toolkit.head_runner import Runner


def _keys(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[Key, ...]:
    """Parse names of groups, separated by commas."""
    from toolkit.accounting.report import Key

    try:
        return tuple(dict.fromkeys(Key(part.strip()) for part in text.split(",")))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: give some of {', '.join(Key)}") from error


@click.command("report")
@config_option
@since_option("30d")
@until_option
@click.option(
    "--period",
    "period_text",
    metavar="PERIOD",
    help="Instead of both: 2026-11, 2026-Q4, 2026, 2026-11-01..2026-11-15 or last-month. A closed"
    " month is printed as it was closed.",
)
@click.option(
    "--by",
    "keys",
    callback=_keys,
    default="account,user",
    show_default=True,
    metavar="KEYS",
    help="One row for each account, user, partition, qos, project, run, job, pool or type, or a"
    " list of these.",
)
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one line a charge.")
@report_files.file_options
@click.option(
    "--cloudtrail",
    "trail_paths",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    help="Read starts, stops and ends from a CloudTrail file or folder. May be repeated.",
)
@click.option("--anew", is_flag=True, help="Compute closed days too, as if none were closed.")
@names_option("all")
@click.option("--roll-up", is_flag=True, help="Add each account with the accounts below it.")
@click.option(
    "--record-mlflow",
    is_flag=True,
    help="Tag MLflow runs with the cost of jobs that are whole in the report.",
)
def command(
    *,
    config_path: Path | None,
    since: datetime,
    until: datetime | None,
    period_text: str | None,
    keys: tuple[Key, ...],
    as_json: bool,
    as_csv: bool,
    parquet_path: Path | None,
    html_path: Path | None,
    focus_path: Path | None,
    trail_paths: tuple[Path, ...],
    anew: bool,
    names: str,
    roll_up: bool,
    record_mlflow: bool,
) -> None:
    """Print the cost of the cluster, by account, user, project and more.

    Slurm's accounting gives the attempts, EC2 the lifetimes of instances and the price of each
    second. The lines sum to the instance cost exactly. Days that `toolkit usage close` has closed
    are read from this computer; a report of closed days alone asks neither AWS nor the head. For
    the trends of --html it also asks for the period before, if neither is closed. --html asks the
    head for measured runs too, where `toolkit recommend` recommended a type that was used later.

    Jobs on racks are in it at the rates in cluster.yaml, also those of a join's site. A job there
    costs nothing extra, and the report says how much of the sum is that.
    """
    check_format(as_json=as_json, as_csv=as_csv)
    if as_csv and roll_up:
        raise click.UsageError("--roll-up has no CSV: take --json, or the table")
    from toolkit.commands import report_period

    files = report_files.ReportFiles(html_path, focus_path, parquet_path)
    files.check()
    config = load_any(config_path)
    if record_mlflow and config.site is not None:
        raise click.UsageError("--record-mlflow: a join has no MLflow of its own")
    now = datetime.now(UTC)
    named = report_period.named(period_text, now)
    wanted = report_period.Wanted(
        period(since, until, now) if named is None else report_period.seconds(named, now),
        named,
        _trail(trail_paths),
        anew=anew,
        needs_head=record_mlflow,
        sums_suffice=True,
    )

    with report_period.made(config_path, config, wanted, now) as (made, head):
        for line in report_period.live_lines(config, wanted):
            click.echo(line, err=True)
        whole = made if made.bill_status is not None else _with_bill_status(config, made)
        report = report_period.with_names(whole, names)
        rolled_up = report_period.roll_up_of(config, made, names, now) if roll_up else None
        making = report_files.Making(
            partial(
                _facts, made, config_path, config, wanted, now, with_trends=html_path is not None
            ),
            partial(report_period.account_tags, config, made, names, now),
        )
        try:
            report_files.write(files, report, keys, making)
            if record_mlflow and head is not None:
                _record(head, whole)
        finally:
            # A tracking server that is down, or a full disk, must not cost the report.
            _print(report, keys, rolled_up, as_json=as_json, as_csv=as_csv)
            if as_csv:
                report_files.name_corrections(report)


def _facts(
    report: Report,
    config_path: Path | None,
    config: ClusterConfig,
    wanted: Wanted,
    now: datetime,
    *,
    with_trends: bool,
) -> FinanceFacts:
    from toolkit.commands import report_facts

    return report_facts.facts_of(
        report,
        config_path=config_path,
        config=config,
        wanted=wanted,
        now=now,
        with_trends=with_trends,
    )


def _trail(paths: Sequence[Path]) -> Trail | None:
    from toolkit.accounting import cloudtrail

    return cloudtrail.read(paths) if paths else None


def _with_bill_status(config: ClusterConfig, report: Report) -> Report:
    """Return the report with the status of its days.

    A record that can't be read costs no report: a note names it.
    """
    from toolkit.accounting.days import day_of
    from toolkit.bill import record
    from toolkit.bill.errors import BillError
    from toolkit.bill.history import bill_status, history
    from toolkit.commands.own_store import own_bills
    from toolkit.usage.errors import OtherCluster

    try:
        known = history(record.read_entries(own_bills(config)))
    except (BillError, OtherCluster) as error:
        return replace(report, notes=(*report.notes, f"record of bills: {error.message}"))
    status = bill_status(known, day_of(report.window.since), day_of(report.window.until - 1))
    return replace(report, bill_status=status)


def _record(runner: Runner, report: Report) -> None:
    from toolkit.accounting import mlflow
    from toolkit.runs import queries

    ended_runs = queries.end_mlflow_runs(runner)
    if ended_runs:
        click.echo(f"MLflow: ended as their jobs did: {len(ended_runs)}", err=True)
    recorded = mlflow.record(runner, report)
    click.echo(
        f"MLflow: cost recorded on {recorded.runs} run{'s' if recorded.runs != 1 else ''}", err=True
    )
    if recorded.partial_jobs:
        click.echo(
            f"MLflow: only a part of the cost of {recorded.partial_jobs} jobs is in this report, "
            "so it is not recorded. Begin the report before their first attempt, by --since.",
            err=True,
        )


def _print(
    report: Report,
    keys: Sequence[Key],
    rolled_up: RollUp | None,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Print the report; accounts with those below follow, if that is wanted."""
    from toolkit.accounting import export

    if as_json:
        from toolkit.output import print_json

        values = export.as_json(report, keys)
        if rolled_up is not None:
            values["roll_up"] = rolled_up.as_json(report)
        print_json(values)
    elif as_csv:
        click.echo(export.as_csv(report), nl=False)
    else:
        from rich.console import Console

        from toolkit.accounting import terminal

        console = Console(highlight=False, soft_wrap=False)
        console.print(terminal.render(report, keys))
        if rolled_up is not None:
            click.echo(rolled_up.as_text(report))
