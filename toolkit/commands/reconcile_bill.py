"""`toolkit reconcile-bill`: AWS's bill against our report, day by day."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.exit_codes import DIFFERS, SAME, ComparingCommand
from toolkit.commands.options import check_format, config_option, dry_run_option, json_option, load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date
    from decimal import Decimal

    from toolkit.bill.estimates import Estimates
    from toolkit.bill.reader import BillFile
    from toolkit.bill.reconcile import Options, Reconciliation
    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients


def _tolerance(_ctx: click.Context, _param: click.Parameter, text: str) -> Decimal:
    from toolkit.bill.amounts import parse_amount

    amount = parse_amount(text)
    if amount is None or amount < 0:
        raise click.BadParameter(f"{text!r} is no amount; write US dollars such as 0.01")
    return amount


@click.command("reconcile-bill", cls=ComparingCommand)
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="FILE...",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@config_option
@click.option(
    "--report",
    "report_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A saved `toolkit report --json`: neither cluster nor AWS is asked.",
)
@click.option(
    "--tolerance",
    callback=_tolerance,
    default="0.01",
    show_default=True,
    metavar="USD",
    help="The widest gap of an instance on a day, and of a day.",
)
@click.option("--final", is_flag=True, help="The months are closed, whatever the invoices say.")
@click.option("--all", "all_lines", is_flag=True, help="Print also the lines within tolerance.")
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, one line an instance and day.")
@dry_run_option
@click.option(
    "--records",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the records  [default: $TOOLKIT_BILLS, then ~/.local/state/toolkit/bills].",
)
def command(
    *,
    paths: Sequence[Path],
    config_path: Path | None,
    report_path: Path | None,
    tolerance: Decimal,
    final: bool,
    all_lines: bool,
    as_json: bool,
    as_csv: bool,
    dry_run: bool,
    folder: Path | None,
) -> int:
    """Compare AWS's bill with the report, by instance and UTC day.

    FILE... are all files of one export of Cost and Usage Report 2.0: CSV, CSV.gz or Parquet, by
    hours or days and with resource ids.

    Exit code 0: every gap is within the tolerance; 2: one is not, or is unknown; 1: any error.
    """
    check_format(as_json=as_json, as_csv=as_csv)
    from toolkit.bill import estimates, record
    from toolkit.bill.reader import open_files
    from toolkit.bill.reconcile import Options

    now = int(datetime.now(UTC).timestamp())
    files = open_files(paths)
    place = folder or record.default_folder()
    options = Options(now, tolerance, final)
    if report_path is not None:
        result = _run(files, estimates.read(report_path), options, place, dry_run=dry_run)
    else:
        result = _run_fresh(config_path, files, options, place, dry_run=dry_run)
    _print(result, as_json=as_json, as_csv=as_csv, all_lines=all_lines, dry_run=dry_run)
    return SAME if result.is_within_tolerance else DIFFERS


def _run(
    files: Sequence[BillFile],
    estimates: Estimates,
    options: Options,
    folder: Path,
    *,
    dry_run: bool,
) -> Reconciliation:
    from toolkit.bill import record
    from toolkit.bill.reader import read_lines
    from toolkit.bill.reconcile import reconcile

    path = record.record_path(folder, estimates.cluster)
    if dry_run:
        with closing(read_lines(files)) as lines:
            return reconcile(files, lines, estimates, record.read_entries(path), options)
    with record.opened(path) as file, closing(read_lines(files)) as lines:
        result = reconcile(files, lines, estimates, record.read_entries(path), options)
        if result.entries:
            record.append(file, result.entries)
    return result


def _run_fresh(
    config_path: Path | None,
    files: Sequence[BillFile],
    options: Options,
    folder: Path,
    *,
    dry_run: bool,
) -> Reconciliation:
    """Hold the bill to a report of now."""
    from toolkit.bill.record import FOLDER_VARIABLE
    from toolkit.commands import own_store
    from toolkit.deploy.session import connected

    config = load(config_path)
    with connected(config) as clients:
        owner = own_store.bills_store(config, folder)
        own_store.check_account(owner, config, clients.account, FOLDER_VARIABLE)
        estimates = _estimates(config_path, config, clients, files, options.now)
        result = _run(files, estimates, options, folder, dry_run=dry_run)
        if not dry_run:
            own_store.keep_bills(config, folder, clients.account)
    return result


def _estimates(
    config_path: Path | None,
    config: ClusterConfig,
    clients: Clients,
    files: Sequence[BillFile],
    now: int,
) -> Estimates:
    from toolkit.accounting import export
    from toolkit.accounting.allocation import Window
    from toolkit.bill import estimates
    from toolkit.bill.errors import BillRefused
    from toolkit.bill.periods import next_month
    from toolkit.bill.reader import read_months
    from toolkit.commands.report_sources import collect_report
    from toolkit.deploy.head import Head

    months = read_months(files)
    if not months:
        raise BillRefused("the bill has no line with a billing period")
    window = Window(_second(months[0]), min(_second(next_month(months[-1])), now))
    head = Head(clients, config)
    report = collect_report(config_path, config, clients, head, window=window, now=now)
    return estimates.parse(export.as_json(report, ()))


def _second(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _print(
    result: Reconciliation, *, as_json: bool, as_csv: bool, all_lines: bool, dry_run: bool
) -> None:
    from toolkit.bill import tables
    from toolkit.output import print_json

    if as_json:
        print_json(tables.as_json(result, dry_run=dry_run))
        return
    if as_csv:
        click.echo(tables.as_csv(result), nl=False)
        return
    click.echo(tables.as_text(result, all_lines=all_lines))
    click.echo(tables.record_text(result.entries, dry_run=dry_run))
