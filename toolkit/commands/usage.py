"""`toolkit usage`: dumps of sacct, of any cluster, and closed days of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.moments import moment
from toolkit.commands.options import check_format, json_option
from toolkit.commands.usage_close import close_command
from toolkit.commands.usage_cost import cost_command
from toolkit.commands.usage_import import import_command
from toolkit.commands.usage_options import report_options, store_of, store_option

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from toolkit.usage.report import UsageKey


@click.group("usage", cls=SuggestingGroup)
def command() -> None:
    """Report on dumps of sacct, offline; close your own cluster's days."""


command.add_command(close_command)
command.add_command(cost_command)
command.add_command(import_command)


@command.command("report")
@store_option
@click.option("--since", callback=moment, metavar="TIME", help="Start  [default: the first].")
@click.option("--until", callback=moment, metavar="TIME", help="End  [default: the last].")
@report_options
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
    report = usage_report(store_of(store_path), since_second, until_second, keys, rates)
    if as_json:
        print_json(show.as_json(report))
    elif as_csv:
        click.echo(show.as_csv(report), nl=False)
    else:
        click.echo(show.as_text(report))


@command.command("status")
@store_option
@json_option
def status_command(*, store_path: Path | None, as_json: bool) -> None:
    """Say what the store has: imported files, clusters' closed days."""
    from toolkit.commands.usage_closing import clusters_status
    from toolkit.output import print_json
    from toolkit.usage import show, show_closed

    store = store_of(store_path)
    manifest = store.manifest()
    clusters = clusters_status(store.folder)
    if as_json:
        print_json({**show.status_json(str(store.folder), manifest), "clusters": clusters})
        return
    if manifest.imports or not clusters:
        click.echo(show.status_text(str(store.folder), manifest))
    if clusters:
        click.echo(show_closed.clusters_text(clusters))
