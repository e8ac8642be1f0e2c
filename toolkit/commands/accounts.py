"""`toolkit accounts`: Slurm's accounts, users and workload classes, from cluster.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import config_option, dry_run_option, json_option, load, yes_option
from toolkit.errors import NotConfirmed
from toolkit.output import plain

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.accounts import Change, Plan
    from toolkit.config import ClusterConfig
    from toolkit.head_runner import Runner

_MARKS = {"add": "+", "change": "~", "remove": "-"}

prune_option = click.option(
    "--prune", is_flag=True, help="Remove entries of the toolkit that cluster.yaml no longer has."
)
adopt_option = click.option(
    "--adopt",
    is_flag=True,
    help="Make accounts of cluster.yaml the toolkit's, if others made them.",
)


@click.group("accounts", cls=SuggestingGroup)
def command() -> None:
    """Plan and apply Slurm accounts, users and workload classes."""


@command.command("plan")
@config_option
@prune_option
@adopt_option
@json_option
def plan_command(config_path: Path | None, prune: bool, adopt: bool, as_json: bool) -> None:
    """Show the changes that `apply` would make in slurmdbd."""
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected

    config = load(config_path)
    with connected(config) as clients:
        plan = _plan(config, Head(clients, config), prune=prune, adopt=adopt)
    if as_json:
        from toolkit.output import print_json

        print_json(_json_plan(plan))
    else:
        _show(plan)


@command.command("apply")
@config_option
@prune_option
@adopt_option
@dry_run_option
@yes_option
def apply_command(
    config_path: Path | None, prune: bool, adopt: bool, dry_run: bool, yes: bool
) -> None:
    """Make slurmdbd hold the accounts, users and classes of cluster.yaml.

    What somebody else made stays as it is. An account or a QOS of theirs that has a name of
    cluster.yaml is refused. Such accounts, and users whom they put into accounts, become the
    toolkit's with --adopt.
    """
    from toolkit.accounts import apply
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected

    config = load(config_path)
    with connected(config) as clients:
        head = Head(clients, config)
        plan = _plan(config, head, prune=prune, adopt=adopt)
        if dry_run:
            _show(plan)
            return
        removals = [change.description for change in plan.changes if change.verb == "remove"]
        if removals and not yes:
            raise NotConfirmed(f"would remove {', '.join(removals)}", next_step="add --yes")
        apply(head, plan, lambda change: click.echo(_line(change)))
    click.echo(_kept_lines(plan) + f"accounts: {len(plan.changes)} changed")


def _plan(config: ClusterConfig, runner: Runner, *, prune: bool, adopt: bool) -> Plan:
    from toolkit.accounts import whole_plan

    return whole_plan(config, runner, prune=prune, adopt=adopt)


def _show(plan: Plan) -> None:
    for change in plan.changes:
        click.echo(_line(change))
    click.echo(_kept_lines(plan), nl=False)
    if not plan.changes:
        click.echo("accounts: nothing to change")


def _line(change: Change) -> str:
    return plain(f"{_MARKS[change.verb]} {change.description}")


def _kept_lines(plan: Plan) -> str:
    left = (f"{entry}: not in cluster.yaml, left alone" for entry in plan.left_alone)
    return "".join(f"  {plain(line)}\n" for line in (*plan.notes, *left))


def _json_plan(plan: Plan) -> dict[str, Any]:
    return {
        "changes": [
            {"verb": change.verb, "what": change.description, "argv": list(change.argv)}
            for change in plan.changes
        ],
        "left_alone": list(plan.left_alone),
        "notes": list(plan.notes),
    }
