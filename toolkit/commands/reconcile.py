"""`toolkit reconcile --plan`: the next actions of the head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, json_option, load_any

if TYPE_CHECKING:
    from pathlib import Path


@click.command("reconcile")
@config_option
@json_option
@click.option("--plan", "plan_only", is_flag=True, required=True, help="Show; change nothing.")
def command(*, config_path: Path | None, as_json: bool, plan_only: bool) -> None:
    """Show the next actions of reconcile on EC2's instances and Slurm's nodes.

    The head runs reconcile every 15 seconds. A plan that stays the same for longer is worth a look.
    """
    del plan_only  # the only thing there is to ask: the pass itself is the head's
    from toolkit.commands.controller import controller, head_programs
    from toolkit.deploy.session import connected
    from toolkit.explain import head_facts
    from toolkit.output import plain, print_json, table

    config = load_any(config_path)
    with connected(config) as clients:
        plan = head_facts.fetch_reconcile_plan(
            controller(clients, config), programs=head_programs(config)
        )
    if as_json:
        print_json(plan)
        return
    if plan.get("note"):
        click.echo(plain(f"nothing is done: {plan['note']}"))
    columns = ("action", "node", "instance", "why")
    rows = [[item.get(key) or "-" for key in columns] for item in plan.get("actions", ())]
    if rows:
        click.echo(table([key.upper() for key in columns], rows))
    elif not plan.get("note"):
        click.echo("nothing to do: EC2 and Slurm agree")
    for remark in plan.get("remarks", ()):
        click.echo(plain(f"note: {remark}"))
