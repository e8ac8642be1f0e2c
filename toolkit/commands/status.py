"""`toolkit status`: the health of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, json_option, load_any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from toolkit.deploy.status import Status
    from toolkit.join.status import JoinStatus


@click.command("status")
@config_option
@json_option
def command(*, config_path: Path | None, as_json: bool) -> int:
    """Say whether the cluster is healthy.

    Exit code 0: healthy; 1: unhealthy, with the reasons. A warning, such as an old backup, does not
    change it.
    """
    from dataclasses import asdict

    from toolkit.commands.controller import head_programs
    from toolkit.deploy.session import connected
    from toolkit.deploy.status import gather
    from toolkit.join import status as join_status
    from toolkit.output import print_json

    config = load_any(config_path)
    status: Status | JoinStatus
    with connected(config) as clients:
        if config.site is None:
            status = gather(config, clients)
        else:
            status = join_status.gather(config, clients, head_programs(config))
    if as_json:
        print_json({**asdict(status), "healthy": status.healthy, "reasons": status.reasons})
    elif isinstance(status, join_status.JoinStatus):
        _print_join(status)
    else:
        _print(status)
    return 0 if status.healthy else 1


def _print_join(status: JoinStatus) -> None:
    from toolkit.output import table

    rows = [
        ("stack", status.stack.lower().replace("_", " ") or "none"),
        ("slurmctld", status.active or "-"),
        ("reconcile", _counts(status.controllers) or "-"),
        ("nodes", _counts(status.nodes) or "-"),
        ("instances", _counts(status.instances) or "none"),
        ("records", _records_text(status)),
    ]
    click.echo(table(("JOIN", status.cluster), rows))
    for reason in status.reasons:
        click.echo(f"unhealthy: {reason}")
    for text in status.warnings:
        click.echo(f"warning: {text}")
    if status.healthy:
        click.echo("healthy")


def _print(status: Status) -> None:
    from toolkit.output import table

    missing = len(status.missing_accounts)
    rows = [
        ("stack", status.stack.lower().replace("_", " ") or "none"),
        ("head", f"{status.head_instance or 'none'} {status.head_state}".strip()),
        ("set-up", status.setup or "-"),
        ("head data", _volume_text(status)),
        ("services", _counts(status.services) or "-"),
        ("slurm", _slurm(status)),
        ("nodes", _counts(status.nodes) or "-"),
        ("instances", _counts(status.instances) or "none"),
        *([("alarms", _counts(status.alarms))] if status.alarms else []),
        *([("login nodes", _counts(status.login_nodes))] if status.login_nodes else []),
        *([("accounts", f"{missing} missing")] if missing else []),
        ("backup", _backup_text(status)),
        ("records", _records_text(status)),
    ]
    click.echo(table(("CLUSTER", status.cluster), rows))
    for reason in status.reasons:
        click.echo(f"unhealthy: {reason}")
    for warning in status.warnings:
        click.echo(f"warning: {warning}")
    if status.healthy:
        click.echo("healthy")


def _slurm(status: Status) -> str:
    """Return the head node's Slurm, and how many nodes have another."""
    from collections import Counter

    others = Counter(status.other_slurm.values())
    texts = [
        f"{count} node{'s' * (count > 1)} {release}" for release, count in sorted(others.items())
    ]
    return ", ".join([status.slurm or "-", *texts])


def _volume_text(status: Status) -> str:
    """Return what is free of the head's data volume."""
    free = status.data_volume
    if free is None:
        return "-"
    return f"{free.space * 100:.0f} % of space, {free.inodes * 100:.0f} % of inodes free"


def _backup_text(status: Status) -> str:
    import time

    from toolkit.deploy.backup_age import age_text

    last = status.backup
    return f"{last.id}, {age_text(time.time() - last.at)} ago" if last.id else "none yet"


def _records_text(status: Status | JoinStatus) -> str:
    import time

    from toolkit.deploy.backup_age import age_text

    until = status.records.attempts
    return "none yet" if until is None else f"of jobs up to {age_text(time.time() - until)} ago"


def _counts(values: Mapping[str, int] | Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
