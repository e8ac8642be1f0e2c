"""`toolkit plan`: the changes that deploy would make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, json_option, load

if TYPE_CHECKING:
    from pathlib import Path


@click.command("plan")
@config_option
@json_option
def command(*, config_path: Path | None, as_json: bool) -> None:
    """Show the changes that deploy would make; make none."""
    from toolkit.deploy.cluster import Cluster
    from toolkit.deploy.session import connected
    from toolkit.output import print_json, reporter

    config = load(config_path)
    with connected(config) as clients:
        intent = Cluster(config, clients, reporter()).preview()
    if as_json:
        print_json(
            {
                "changes": intent.plan.changes,
                "missing_images": intent.missing_images,
                "new_bundle": intent.new_bundle,
                "new_head": intent.new_head,
                "head_restarts": intent.head_restarts,
                "note": intent.plan.note,
            }
        )
    else:
        click.echo(intent.text())
