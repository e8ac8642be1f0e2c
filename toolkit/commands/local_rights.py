"""`toolkit local rights`: what roles called, what was denied, which rights nobody used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.local_options import control_client, state_option
from toolkit.commands.options import json_option

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.option("--unused", is_flag=True, help="List the rights of roles that no call has used.")
@state_option
@json_option
def rights(state: Path | None, *, unused: bool, as_json: bool) -> None:
    """Show every call that IAM judged, the denied ones last."""
    from toolkit.output import print_json, table

    record = control_client(state).get("rights")
    if as_json:
        print_json(record)
    elif unused:
        rows = [
            [role, right["policy"], right["statement"], right["action"], right["resource"]]
            for role, items in record["unused"].items()
            for right in items
        ]
        columns = ["role", "policy", "statement", "action", "resource"]
        click.echo(table(columns, rows) if rows else "every right was used")
    else:
        calls = sorted(record["calls"], key=lambda call: not call["allowed"])
        rows = [
            [
                str(call["count"]), call["role"], call["action"], call["resource"],
                call["statement"] if call["allowed"] else f"DENIED  {call['note']}",
            ]
            for call in calls
        ]  # fmt: skip
        columns = ["count", "role", "action", "resource", "statement"]
        click.echo(table(columns, rows) if rows else "no role has called yet")
