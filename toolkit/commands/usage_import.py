"""`toolkit usage import`: read dumps of sacct into the store, and report on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import dry_run_option, json_option
from toolkit.commands.usage_options import report_options, store_of, store_option

if TYPE_CHECKING:
    from toolkit.usage.import_dump import ImportOptions, ImportResult
    from toolkit.usage.report import UsageKey
    from toolkit.usage.store import Store

_SHOWN_LINES = 5


def _timezone(_ctx: click.Context, _param: click.Parameter, name: str) -> str:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name).key
    except (ValueError, KeyError, OSError) as error:
        raise click.BadParameter(f"{name!r} is no time zone; write Europe/Berlin") from error


@click.command("import")
@click.argument(
    "paths",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@store_option
@click.option("--delimiter", metavar="TEXT", help="Between two fields  [default: the header's].")
@click.option(
    "--timezone",
    callback=_timezone,
    default="UTC",
    show_default=True,
    metavar="NAME",
    help="The zone of times such as 2026-11-21T10:00:00. Epoch seconds need none.",
)
@report_options
@dry_run_option
@json_option
def import_command(
    *,
    paths: tuple[Path, ...],
    store_path: Path | None,
    delimiter: str | None,
    timezone: str,
    keys: tuple[UsageKey, ...],
    rate_options: tuple[str, ...],
    prices_path: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Read dumps of `sacct -P` into the store, and print its report.

    They are plain or gzip, and the first line names the fields. A file may be imported again, or
    overlap with another: each attempt counts once. The report is that of `toolkit usage
    report`, of all that the store has.
    """
    from toolkit.output import print_json
    from toolkit.usage import show
    from toolkit.usage.import_dump import ImportOptions
    from toolkit.usage.rates import read_rates
    from toolkit.usage.report import usage_report

    store = store_of(store_path)
    rates = read_rates(rate_options, prices_path)
    options = ImportOptions(delimiter=delimiter, timezone=timezone)
    results = []
    for path in paths:
        results.append(_imported(store, path, options, dry_run=dry_run))
        if not as_json:
            _show(path, results[-1], dry_run=dry_run)
    report = None if dry_run else usage_report(store, None, None, keys, rates)
    if as_json:
        imports = [show.import_json(result.record) for result in results]
        known = None if report is None else show.as_json(report)
        print_json({"store": str(store.folder), "imports": imports, "report": known})
    elif report is not None:
        click.echo(f"\n{show.as_text(report)}")


def _imported(store: Store, path: Path, options: ImportOptions, *, dry_run: bool) -> ImportResult:
    import tempfile

    from toolkit.usage.import_dump import checked_dump, import_dump

    if not dry_run:
        return import_dump(store, path, options)
    with tempfile.TemporaryDirectory() as temporary:
        return checked_dump(path, options, Path(temporary))


def _show(path: Path, result: ImportResult, *, dry_run: bool) -> None:
    from toolkit.output import plain

    record = result.record
    if result.was_known:
        click.echo(f"{path}: was imported before, nothing to do")
        return
    verb = "would import" if dry_run else "imported"
    steps = f", {record.steps:,} job steps left out" if record.steps else ""
    days = "" if dry_run else f", {result.days:,} days changed"
    click.echo(f"{path}: {verb} {record.attempts:,} attempts{days}{steps}")
    if result.bad_lines:
        click.echo(f"{len(result.bad_lines):,} lines set aside, which are in no sum:", err=True)
    for line in result.bad_lines[:_SHOWN_LINES]:
        click.echo(plain(f"  line {line.line}: {line.reason}: {line.text[:60]}"), err=True)
