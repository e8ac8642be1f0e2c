"""`toolkit apply`: push settings to the running head node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, dry_run_option, find_config_file, load

if TYPE_CHECKING:
    from pathlib import Path


@click.command("apply")
@config_option
@dry_run_option
@click.option(
    "--cancel-jobs-of-left-users",
    "cancel",
    is_flag=True,
    help="Cancel the jobs of users that cluster.yaml no longer has.",
)
@click.option("--force", is_flag=True, help="Run the playbook although nothing differs.")
def command(*, config_path: Path | None, dry_run: bool, cancel: bool, force: bool) -> None:
    """Push settings to the running head node: slurm.conf, hooks, users, job scripts.

    apply is the quick part of deploy: it touches neither images nor the stack.
    """
    from toolkit.accounting.settings import price_book
    from toolkit.deploy import left_users
    from toolkit.deploy.cluster import Cluster
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected
    from toolkit.output import reporter
    from toolkit.prices import imports

    path = find_config_file(config_path)
    config = load(path)
    book = price_book(config, imports.read(imports.folder(path)))
    with connected(config) as clients:
        cluster = Cluster(config, clients, reporter(), book=book)
        if dry_run:
            changed_paths = cluster.unapplied_files()
            click.echo("\n".join(f"~ {path}" for path in changed_paths) or "no changes")
            return
        head = Head(clients, config)
        applied = cluster.apply(force=force)
        jobs = left_users.limit_left_users(config, head, cancel=cancel)
    for jobs_of_user in jobs:
        click.echo(str(jobs_of_user))
    click.echo("applied" if applied else "no changes")
