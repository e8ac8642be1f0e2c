"""The `toolkit` command: finds the command, turns errors into text and exit codes.

Commands are imported when they are called. `toolkit --help` and `--version` load click
and nothing else, so completing a word in a shell stays quick.

Exit codes:

- 0: done (or healthy).
- 1: failed (or unhealthy).
- 2: wrong usage, or an invalid cluster.yaml.
- 3: `--yes` is needed.
- 4: AWS refused, or can't be reached.
- 130: interrupted.

`plan`, `join plan`, `image check` and `reconcile-bill` differ: 0 nothing differs,
2 something does, 1 every error.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130


# The commands and their lines in `toolkit --help`. The module `toolkit.commands.NAME` holds a click
# command named `command`; a hyphen in a name is an underscore there.
COMMANDS = {
    "deploy": "Bring the cluster to the state of cluster.yaml.",
    "plan": "Show what deploy would change.",
    "preflight": "Ask AWS whether the account can have the cluster.",
    "apply": "Push settings to the running head node.",
    "status": "Say whether the cluster is healthy.",
    "why": "Say why a job waits or failed, or what state a node is in.",
    "logs": "Print the logs of the head node, a node or an instance.",
    "nodes": "List nodes and the instances behind them.",
    "jobs": "List jobs and their instances.",
    "reconcile": "Show what reconcile would do next.",
    "burst": "Say which jobs of racks may go to the cloud, rehearse other rules.",
    "destroy": "Delete the cluster and everything in it.",
    "join": "Add cloud nodes to a Slurm that a site runs already.",
    "login": "Open a shell on a login node, or else on the head node.",
    "run": "Run one command on the head node.",
    "secrets": "Rotate the cluster's secrets.",
    "backup": "List, take and restore backups.",
    "image": "Build, list and pin machine images.",
    "config": "Write, check and explain cluster.yaml.",
    "lint": "Find mistakes in a batch script that lose work.",
    "submit": "Check a batch script, then sbatch it.",
    "recommend": "Say which GPU suits a training, how many, spot or not.",
    "quote": "Say what a job would cost, on spot and on demand.",
    "accounts": "Plan and apply Slurm accounts, users and workload classes.",
    "budget": "Show what accounts and projects may cost, and hold them to it.",
    "data": "Add, check, cache and collect datasets.",
    "prices": "Import AWS's price list, show the prices of a report.",
    "report": "Print the cluster's cost by account, user, project and more.",
    "savings": "Print what measures saved, and what they cost, by month.",
    "reconcile-bill": "Compare AWS's bill with the report.",
    "usage": "Report on dumps of sacct, offline; close your own cluster's days.",
    "period": "Review and close months of the report.",
    "statement": "Write the statements of accounts, and the accounting journal.",
    "runs": "List, show, compare and replay training runs.",
    "sweep": "Search for the best parameters with a job array.",
    "local": "Run the local cloud: an AWS endpoint on this computer.",
}


class LazyGroup(SuggestingGroup):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"toolkit.commands.{cmd_name.replace('-', '_')}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"toolkit.commands.{cmd_name}.command is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version

    click.echo(f"toolkit {version('slurm-ec2-toolkit')}")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """A Slurm cluster whose nodes exist only while jobs need them."""


def describe(error: ToolkitError) -> str:
    """Return an error as people see it: message and next step."""
    text = f"error: {error.message} [{error.reason}]"
    return f"{text}\nnext: {error.next_step}" if error.next_step else text


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code.

    Never raises for an expected failure.
    """
    try:
        result = cli.main(args=list(args), prog_name="toolkit", standalone_mode=False)
    except ToolkitError as error:
        click.echo(describe(error), err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
