"""`toolkit destroy`: delete the cluster and everything in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, dry_run_option, load, yes_option
from toolkit.errors import NotConfirmed

if TYPE_CHECKING:
    from pathlib import Path


@click.command("destroy")
@config_option
@dry_run_option
@yes_option
@click.option(
    "--images", "with_images", is_flag=True, help="Delete images too that no other cluster uses."
)
def command(*, config_path: Path | None, dry_run: bool, yes: bool, with_images: bool) -> int:
    """Delete the cluster and everything in it: instances, files, accounting, artifacts.

    Machine images stay for the next deploy, unless --images is given. The output names them. An
    image that another cluster's launch template or instance uses stays with --images, too.

    destroy then checks, service by service, that nothing is left. Run it again if it was cut off.
    """
    from toolkit.deploy.destroy import Destroyer
    from toolkit.deploy.session import connected
    from toolkit.output import reporter

    config = load(config_path)
    with connected(config) as clients:
        destroyer = Destroyer(config, clients, reporter())
        inventory = destroyer.inventory(with_images=with_images)
        if dry_run or inventory.is_empty:
            click.echo("\n".join(filter(None, [inventory.text(), inventory.kept_images_text])))
            return 0
        if not yes:
            raise NotConfirmed(
                f"this deletes cluster {config.cluster} for good:\n{inventory.text()}",
                next_step="confirm with --yes",
            )
        destroyer.destroy(with_images=with_images)
    click.echo(
        "\n".join(
            filter(None, [f"cluster {config.cluster} is deleted", inventory.kept_images_text])
        )
    )
    return 0
