"""`toolkit preflight`: whether the AWS account can have the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, find_config_file, json_option, load

if TYPE_CHECKING:
    from pathlib import Path

NOT_READY = 1


@click.command("preflight")
@config_option
@json_option
def command(*, config_path: Path | None, as_json: bool) -> int:
    """Ask AWS whether the account can have the cluster; change nothing.

    It asks for zones, instance types, vCPU quotas, capacity reservations, the default key of disks,
    and for launches with EC2's DryRun. Exit code 0: ready, or warnings only; 1: deploy would fail.
    """
    from toolkit.deploy.image_lock import ImageLock
    from toolkit.deploy.preflight import preflight
    from toolkit.deploy.session import connected
    from toolkit.output import plain, print_json, reporter

    path = find_config_file(config_path)
    config = load(path)
    with connected(config) as clients:
        result = preflight(config, clients, reporter(), path, ImageLock.beside(path))
    if as_json:
        print_json({"ready": result.ready, **result.to_json()})
    else:
        for item in result.findings:
            click.echo(plain(str(item)))
        click.echo(result.sentence)
    return 0 if result.ready else NOT_READY
