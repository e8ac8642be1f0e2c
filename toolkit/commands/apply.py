"""`toolkit apply`: push settings to the running head node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, dry_run_option, load

if TYPE_CHECKING:
    from pathlib import Path


@click.command("apply")
@config_option
@dry_run_option
@click.option("--force", is_flag=True, help="Run the playbook although nothing differs.")
def command(*, config_path: Path | None, dry_run: bool, force: bool) -> None:
    """Push settings to the running head node: slurm.conf, hooks, users, job scripts.

    apply is the quick part of deploy: it touches neither images nor the stack.
    """
    from toolkit.deploy.cluster import Cluster
    from toolkit.deploy.session import connected
    from toolkit.output import reporter

    config = load(config_path)
    with connected(config) as clients:
        cluster = Cluster(config, clients, reporter())
        if dry_run:
            changed_paths = cluster.unapplied_files()
            click.echo("\n".join(f"~ {path}" for path in changed_paths) or "no changes")
            return
        applied = cluster.apply(force=force)
    click.echo("applied" if applied else "no changes")
