"""`toolkit destroy`: delete the cluster and everything in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, dry_run_option, load, yes_option
from toolkit.errors import NotConfirmed

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.deploy.destroy import Destroyer, Inventory


@click.command("destroy")
@config_option
@dry_run_option
@yes_option
@click.option(
    "--images", "with_images", is_flag=True, help="Delete images too that no other cluster uses."
)
@click.option(
    "--backups", "with_backups", is_flag=True, help="Delete the backups and kept records too."
)
def command(
    *, config_path: Path | None, dry_run: bool, yes: bool, with_images: bool, with_backups: bool
) -> int:
    """Delete the cluster and everything in it: instances, files, accounting, artifacts.

    Backups stay for good, and the records of what was spent, unless --backups is given. A snapshot
    of the head node's data volume stays: Slurm's state and the databases. Machine images stay for
    the next deploy, unless --images is given. An image that another cluster's launch template or
    instance uses stays with --images, too. The output names all of them.

    destroy then checks, service by service, that nothing is left. Run it again if it was cut off.
    """
    from toolkit.deploy.destroy import Destroyer
    from toolkit.deploy.session import connected
    from toolkit.output import reporter

    config = load(config_path)
    with connected(config) as clients:
        destroyer = Destroyer(config, clients, reporter())
        inventory = destroyer.inventory(with_images=with_images, with_backups=with_backups)
        if dry_run or inventory.is_empty:
            _print(inventory.text(), inventory, destroyer)
            return 0
        if not yes:
            raise NotConfirmed(
                f"this deletes cluster {config.cluster} for good:\n{inventory.text()}",
                next_step="confirm with --yes",
            )
        destroyer.destroy(with_images=with_images, with_backups=with_backups)
        _print(f"cluster {config.cluster} is deleted", inventory, destroyer)
    return 0


def _print(first: str, inventory: Inventory, destroyer: Destroyer) -> None:
    """Print a text, and the images, backups and snapshots that stay."""
    kept = (inventory.kept_images_text, inventory.kept_backups_text)
    stays = [*kept, *map(str, destroyer.snapshots())]
    click.echo("\n".join(filter(None, [first, *stays])))
