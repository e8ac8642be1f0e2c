"""`toolkit nodes`: nodes and their instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, json_option, load_any

if TYPE_CHECKING:
    from pathlib import Path


@click.command("nodes")
@config_option
@json_option
@click.option("--all", "-a", "everything", is_flag=True, help="List nodes at rest as well.")
def command(*, config_path: Path | None, as_json: bool, everything: bool) -> None:
    """List nodes with instance, type, zone, lifecycle, price and age.

    The table leaves out nodes at rest (powered down, nothing wrong), unless --all is given. --json
    has every node.
    """
    from toolkit.commands.controller import controller, head_programs
    from toolkit.deploy.session import connected
    from toolkit.explain import head_facts, tables
    from toolkit.output import plain, print_json, table

    config = load_any(config_path)
    with connected(config) as clients:
        head_report = head_facts.fetch_report(
            controller(clients, config), programs=head_programs(config)
        )
    rows = tables.node_rows(head_report, include_resting=everything or as_json)
    if as_json:
        answer = {"nodes": rows, "source": head_report.node_source, "unread": head_report.unread}
        print_json(answer)
        return
    if rows:
        click.echo(table(tables.NODE_HEADERS, tables.node_cells(rows)))
    count_at_rest = len(head_report.nodes) - len(rows)
    if count_at_rest:
        click.echo(f"{count_at_rest} nodes at rest")
    for line in head_report.unread:
        click.echo(plain(f"could not be read: {line}"), err=True)
