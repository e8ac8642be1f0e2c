"""`toolkit jobs`: jobs and their instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, json_option, load_any

if TYPE_CHECKING:
    from pathlib import Path


@click.command("jobs")
@config_option
@json_option
def command(*, config_path: Path | None, as_json: bool) -> None:
    """List jobs with their instances: type, zone, lifecycle, price, age."""
    from toolkit.commands.controller import controller, head_programs
    from toolkit.deploy.session import connected
    from toolkit.explain import head_facts, tables
    from toolkit.output import plain, print_json, table

    config = load_any(config_path)
    with connected(config) as clients:
        head_report = head_facts.fetch_report(
            controller(clients, config), programs=head_programs(config)
        )
    rows = tables.job_rows(head_report)
    if as_json:
        print_json({"jobs": rows, "unread": head_report.unread})
        return
    text = table(tables.JOB_HEADERS, tables.job_cells(rows)) if rows else "no jobs"
    click.echo(text)
    for line in head_report.unread:
        click.echo(plain(f"could not be read: {line}"), err=True)
