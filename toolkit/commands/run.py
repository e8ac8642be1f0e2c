"""`toolkit run`: one command on the head node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, load
from toolkit.errors import HeadCommandFailed

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    "run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@config_option
@click.option(
    "--timeout", default=60.0, show_default=True, help="Seconds that the command may take."
)
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED)
def command(*, config_path: Path | None, timeout: float, argv: tuple[str, ...]) -> int:
    """Run one command on the head node as root.

    Example: toolkit run -- sinfo -N. The command's output and exit code become toolkit's own.
    """
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected

    config = load(config_path)
    with connected(config) as clients:
        try:
            output = Head(clients, config).output(argv, timeout=timeout)
        except HeadCommandFailed as error:
            if error.returncode <= 0:
                raise
            click.echo(error.stdout, nl=False)
            click.echo(error.stderr, nl=False, err=True)
            return error.returncode
    click.echo(output.stdout, nl=False)
    click.echo(output.stderr, nl=False, err=True)
    return 0
