"""`toolkit backup`: list, take and restore backups of the head node's data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import (
    config_option,
    dry_run_option,
    json_option,
    load,
    yes_option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.config import ClusterConfig
    from toolkit.deploy.backup_restore import RestorePlan


@click.group("backup", cls=SuggestingGroup)
def command() -> None:
    """List, take and restore backups of accounting, MLflow, sweeps and records."""


def _of(config: ClusterConfig, cluster: str | None) -> ClusterConfig:
    """Return the configuration under another cluster's name."""
    if cluster is None:
        return config
    import re

    from toolkit.config.types import NAME

    if not re.fullmatch(NAME, cluster):
        raise click.BadParameter(f"{cluster} is not a cluster's name", param_hint="--from-cluster")
    return config.model_copy(update={"cluster": cluster})


_from_cluster_option = click.option(
    "--from-cluster",
    metavar="NAME",
    help="The backups of this cluster of the same account and region, also if it is destroyed.",
)


@command.command("list")
@config_option
@json_option
@_from_cluster_option
def list_backups(*, config_path: Path | None, as_json: bool, from_cluster: str | None) -> None:
    """List the complete backups, oldest first."""
    from dataclasses import asdict

    from toolkit.deploy.backup_store import BackupStore
    from toolkit.deploy.session import connected
    from toolkit.output import print_json, reporter, table

    config = load(config_path)
    with connected(config) as clients:
        backups = BackupStore(_of(config, from_cluster), clients, reporter()).find()
    if as_json:
        print_json([asdict(item) for item in backups])
        return
    rows = [(item.id, item.time, f"{item.bytes / 1e6:.1f} MB") for item in backups]
    click.echo(table(("BACKUP", "TAKEN", "SIZE"), rows) if rows else "no backups yet")


@command.command("now")
@config_option
@dry_run_option
def take_now(*, config_path: Path | None, dry_run: bool) -> None:
    """Take a backup now, without waiting for the timer."""
    from toolkit.deploy import backup_restore, names
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected
    from toolkit.output import reporter

    config = load(config_path)
    with connected(config) as clients:
        bucket = names.backup_bucket(config, clients.account)
        if dry_run:
            click.echo(f"would take a backup of cluster {config.cluster} to s3://{bucket}/backups/")
            return
        with reporter().phase("Taking a backup"):
            taken = backup_restore.take(config, clients, Head(clients, config))
    click.echo(f"backup {taken.id}: {taken.bytes / 1e6:.1f} MB in s3://{bucket}/backups/")


@command.command("restore")
@config_option
@dry_run_option
@yes_option
@_from_cluster_option
@click.option(
    "--no-backup", is_flag=True, help="Take no backup first, of data that can't be read any more."
)
@click.option(
    "--instead",
    is_flag=True,
    help="Give up a restore that was cut off, and restore another backup, named by its id.",
)
@click.argument("backup")
def restore(
    *,
    config_path: Path | None,
    dry_run: bool,
    yes: bool,
    from_cluster: str | None,
    no_backup: bool,
    instead: bool,
    backup: str,
) -> None:
    """Replace accounting, MLflow's runs, sweeps and records by those of BACKUP.

    BACKUP is an id of `toolkit backup list`, or `latest`: the newest that was not taken before a
    restore. After a restore that was cut off, `latest` is the backup that it began with.

    The head node checks every hash first. It refuses while a job is in the queue, and if the backup
    needs newer programs. Before it replaces anything, it takes a backup of what is there.

    With --dry-run it checks the backup, and replaces nothing. The queue is not restored: job ids go
    on far beyond the old ones.
    """
    from toolkit.deploy import backup_restore
    from toolkit.deploy.backup_store import BackupStore
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected
    from toolkit.output import reporter

    config, report = load(config_path), reporter()
    with connected(config) as clients:
        head = Head(clients, config)
        source = BackupStore(_of(config, from_cluster), clients, report)
        work = backup_restore.Restore(config, clients, head, source, report, instead)
        plan = work.plan(work.choose(backup))
        if dry_run:
            click.echo(plan.text())
            return
        _check_restore(plan, config.cluster, yes=yes)
        before = ""
        if not (no_backup or plan.resumed):
            with report.phase("Taking a backup of what is there") as phase:
                before = backup_restore.take(config, clients, head, before_restore=True).id
                phase.result(before)
        work.run(plan)
    click.echo(f"restored {plan.backup}")
    if before:
        click.echo(f"backup {before} has what was there before")


def _check_restore(plan: RestorePlan, cluster: str, *, yes: bool) -> None:
    """Raise BackupUnusable if the plan has problems, and NotConfirmed without --yes."""
    from toolkit.errors import BackupUnusable, NotConfirmed

    if plan.problems:
        raise BackupUnusable(
            f"backup {plan.backup} can't be restored here: {'; '.join(plan.problems)};"
            " nothing was changed"
        )
    if not yes:
        raise NotConfirmed(
            f"this replaces data of cluster {cluster}:\n{plan.text()}",
            next_step="confirm with --yes",
        )
