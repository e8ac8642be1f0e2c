"""`toolkit jobs`: jobs and the machines they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, json_option, load

if TYPE_CHECKING:
    from pathlib import Path


@click.command("jobs")
@config_option
@json_option
def command(*, config_path: Path | None, as_json: bool) -> None:
    """List jobs with their machines: type, zone, lifecycle, price, age."""
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected
    from toolkit.explain import head_facts, tables
    from toolkit.output import plain, print_json, table

    config = load(config_path)
    with connected(config) as clients:
        sheet = head_facts.ask(Head(clients, config))
    rows = tables.job_rows(sheet)
    if as_json:
        print_json({"jobs": rows, "unread": sheet.unread})
        return
    shown = table(tables.JOB_HEADERS, tables.job_cells(rows)) if rows else "no jobs"
    click.echo(shown)
    for line in sheet.unread:
        click.echo(plain(f"could not be read: {line}"), err=True)
