"""`toolkit usage`: dumps of sacct, of any cluster, and closed days of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.moments import moment
from toolkit.commands.options import check_format, dry_run_option, json_option
from toolkit.commands.usage_close import close_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from toolkit.usage.import_dump import ImportResult
    from toolkit.usage.report import UsageKey
    from toolkit.usage.store import Store

_SHOWN_LINES = 5


def _store_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--store",
        "store_path",
        type=click.Path(file_okay=False, path_type=Path),
        help="The store's folder  [default: $TOOLKIT_USAGE_STORE, then your data folder].",
    )(function)


def _store(store_path: Path | None) -> Store:
    from toolkit.usage.store import Store, default_folder

    return Store(store_path or default_folder())


def _keys(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[UsageKey, ...]:
    """Parse names of groups, separated by commas."""
    from toolkit.usage.report import UsageKey

    try:
        return tuple(dict.fromkeys(UsageKey(part.strip()) for part in text.split(",")))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: give some of {', '.join(UsageKey)}") from error


def _timezone(_ctx: click.Context, _param: click.Parameter, name: str) -> str:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name).key
    except (ValueError, KeyError, OSError) as error:
        raise click.BadParameter(f"{name!r} is no time zone; write Europe/Berlin") from error


@click.group("usage", cls=SuggestingGroup)
def command() -> None:
    """Report on dumps of sacct, offline; close your own cluster's days."""


command.add_command(close_command)


@command.command("import")
@click.argument(
    "paths",
    metavar="FILE...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@_store_option
@click.option("--delimiter", metavar="TEXT", help="Between two fields  [default: the header's].")
@click.option(
    "--timezone",
    callback=_timezone,
    default="UTC",
    show_default=True,
    metavar="NAME",
    help="The zone of times such as 2026-11-21T10:00:00. Epoch seconds need none.",
)
@dry_run_option
@json_option
def import_command(
    *,
    paths: tuple[Path, ...],
    store_path: Path | None,
    delimiter: str | None,
    timezone: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Read dumps of `sacct -P`, plain or gzip, into the store.

    The first line names the fields. A file may be imported again, or overlap with another: each
    attempt counts once.
    """
    import tempfile

    from toolkit.usage.import_dump import ImportOptions, checked_dump, import_dump
    from toolkit.usage.show import import_json

    store = _store(store_path)
    options = ImportOptions(delimiter=delimiter, timezone=timezone)
    results = []
    for path in paths:
        if dry_run:
            with tempfile.TemporaryDirectory() as temporary:
                result = checked_dump(path, options, Path(temporary))
        else:
            result = import_dump(store, path, options)
        results.append(result)
        if not as_json:
            _show(path, result, dry_run=dry_run)
    if as_json:
        from toolkit.output import print_json

        print_json(
            {"store": str(store.folder), "imports": [import_json(r.record) for r in results]}
        )


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


@command.command("report")
@_store_option
@click.option("--since", callback=moment, metavar="TIME", help="Start  [default: the first].")
@click.option("--until", callback=moment, metavar="TIME", help="End  [default: the last].")
@click.option(
    "--by",
    "keys",
    callback=_keys,
    default="account",
    show_default=True,
    metavar="KEYS",
    help="account, user, job, partition, qos, node-type, cluster, or a list of these.",
)
@click.option(
    "--rate",
    "rate_options",
    multiple=True,
    metavar="NAME=USD",
    help="Price of a node-hour, of a partition or a node type. May be repeated.",
)
@click.option(
    "--prices",
    "prices_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with node types and prices; docs/usage.md has its form.",
)
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
def report_command(
    *,
    store_path: Path | None,
    since: datetime | None,
    until: datetime | None,
    keys: tuple[UsageKey, ...],
    rate_options: tuple[str, ...],
    prices_path: Path | None,
    as_json: bool,
    as_csv: bool,
) -> None:
    """Print attempts, node-hours, CPU-hours, GPU-hours, and cost where rates are given."""
    check_format(as_json=as_json, as_csv=as_csv)
    from toolkit.output import print_json
    from toolkit.usage import show
    from toolkit.usage.rates import read_rates
    from toolkit.usage.report import usage_report

    rates = read_rates(rate_options, prices_path)
    since_second, until_second = (
        None if time is None else int(time.timestamp()) for time in (since, until)
    )
    report = usage_report(_store(store_path), since_second, until_second, keys, rates)
    if as_json:
        print_json(show.as_json(report))
    elif as_csv:
        click.echo(show.as_csv(report), nl=False)
    else:
        click.echo(show.as_text(report))


@command.command("status")
@_store_option
@json_option
def status_command(*, store_path: Path | None, as_json: bool) -> None:
    """Say what the store has: imported files, clusters' closed days."""
    from toolkit.commands.usage_closing import clusters_status
    from toolkit.output import print_json
    from toolkit.usage import show, show_closed

    store = _store(store_path)
    manifest = store.manifest()
    clusters = clusters_status(store.folder)
    if as_json:
        print_json({**show.status_json(str(store.folder), manifest), "clusters": clusters})
        return
    if manifest.imports or not clusters:
        click.echo(show.status_text(str(store.folder), manifest))
    if clusters:
        click.echo(show_closed.clusters_text(clusters))
