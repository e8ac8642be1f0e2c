"""`toolkit plan`: the changes that deploy would make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.exit_codes import DIFFERS, SAME, ComparingCommand
from toolkit.commands.options import config_option, find_config_file, json_option, load

if TYPE_CHECKING:
    from pathlib import Path


@click.command("plan", cls=ComparingCommand)
@config_option
@json_option
def command(*, config_path: Path | None, as_json: bool) -> int:
    """Show the changes that deploy would make; make none.

    Exit code 0: deploy would change nothing; 2: it would change something; 1: any error, also a
    wrong option or an invalid cluster.yaml.
    """
    from toolkit.deploy.cluster import Cluster
    from toolkit.deploy.image_lock import ImageLock
    from toolkit.deploy.plan_summary import deploy_sentence
    from toolkit.deploy.session import connected
    from toolkit.output import print_json, reporter

    path = find_config_file(config_path)
    config = load(path)
    with connected(config) as clients:
        intent = Cluster(config, clients, reporter(), ImageLock.beside(path)).preview()
    if as_json:
        print_json(
            {
                "changes": intent.plan.changes,
                "missing_images": intent.missing_images,
                "new_bundle": intent.new_bundle,
                "deploy": deploy_sentence(intent),
                "new_head": intent.new_head,
                "head_restarts": intent.head_restarts,
                "note": intent.plan.note,
            }
        )
    else:
        click.echo(intent.text())
        click.echo(deploy_sentence(intent))
    return SAME if intent.is_empty else DIFFERS
