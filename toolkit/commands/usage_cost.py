"""`toolkit usage cost`: charge a list of instances to the jobs of a dump."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.moments import moment
from toolkit.commands.options import check_format, json_option
from toolkit.commands.usage_options import keys_option, store_of, store_option

if TYPE_CHECKING:
    from datetime import datetime

    from toolkit.usage.report import UsageKey


@click.command("cost")
@click.argument(
    "path", metavar="INSTANCES", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@store_option
@click.option(
    "--since", callback=moment, metavar="TIME", help="Start  [default: the first launch]."
)
@click.option("--until", callback=moment, metavar="TIME", help="End  [default: the last end].")
@keys_option
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
def cost_command(
    *,
    path: Path,
    store_path: Path | None,
    since: datetime | None,
    until: datetime | None,
    keys: tuple[UsageKey, ...],
    as_json: bool,
    as_csv: bool,
) -> None:
    """Charge a CSV list of instances to the jobs of imported dumps.

    Each second of an instance goes to the jobs on it, to the job that waited for it, or to the one
    before. So the rows have useful and lost work, boot and idle time, and sum to the instances'
    cost. docs/usage.md has the list's columns.
    """
    check_format(as_json=as_json, as_csv=as_csv)
    from toolkit.accounting.allocation import Window
    from toolkit.output import print_json
    from toolkit.usage import instance_list, show_costs
    from toolkit.usage.instance_costs import instance_costs

    listed = instance_list.read(path)
    store = store_of(store_path)
    first = min((item.launched for item in listed.instances), default=0)
    ends = [item.ended for item in listed.instances if item.ended is not None]
    last = max([*ends, store.manifest().known_until, first + 1])
    window = Window(
        first if since is None else int(since.timestamp()),
        last if until is None else int(until.timestamp()),
    )
    report = instance_costs(store, listed, window, keys)
    if as_json:
        print_json(show_costs.as_json(report))
    elif as_csv:
        click.echo(show_costs.as_csv(report), nl=False)
    else:
        click.echo(show_costs.as_text(report))
