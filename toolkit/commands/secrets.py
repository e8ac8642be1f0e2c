"""`toolkit secrets`: the cluster's secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import config_option, dry_run_option, load

if TYPE_CHECKING:
    from pathlib import Path


@click.group("secrets", cls=SuggestingGroup)
def command() -> None:
    """Rotate the cluster's secrets."""


@command.command("rotate")
@config_option
@dry_run_option
@click.option(
    "--overlap",
    type=click.IntRange(0, 86_400),
    default=120,  # twice the life of a credential: DEFAULT_TTL in auth/slurm, 60 s
    show_default=True,
    metavar="SECONDS",
    help="How long the old key is accepted after it has signed for the last time.",
)
@click.option(
    "--wait",
    type=click.IntRange(1, 86_400),
    default=1200,
    show_default=True,
    metavar="SECONDS",
    help="How long a step waits for nodes; nodes that boot have to come up.",
)
def rotate(*, config_path: Path | None, dry_run: bool, overlap: int, wait: int) -> None:
    """Give Slurm a new key. Jobs and the queue go on.

    A rotation that was interrupted goes on where it was: run the command again. Exit code 0: the
    old key is refused; 1: it is not, and the message says why.
    """
    from toolkit.deploy import key_rotation
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected
    from toolkit.output import reporter

    config = load(config_path)
    key_rotation.check_version(config)
    with connected(config) as clients:
        rotation = key_rotation.Rotation(
            config,
            clients.client("secretsmanager"),
            Head(clients, config),
            reporter(),
            wait_seconds=wait,
            overlap_seconds=overlap,
        )
        if dry_run:
            keys = rotation.read()
            click.echo(f"{len(keys.key_ids)} of 2 keys; next: {key_rotation.next_step(keys)}")
            return
        click.echo(rotation.run())
