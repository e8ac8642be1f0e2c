"""`toolkit image packages`: Slurm's packages, of which images are built."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import (
    config_option,
    dry_run_option,
    find_config_file,
    json_option,
    load,
)

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.render.slurm_packages import SlurmPackages

SHA_SHOWN = 12


@click.group("packages", cls=SuggestingGroup)
def command() -> None:
    """Add and list Slurm's packages, of which images are built."""


@command.command("add")
@config_option
@dry_run_option
@click.option(
    "--system",
    metavar="ID-VERSION",
    help="The system that they were built for, such as ubuntu-24.04  [default: images.base's].",
)
@click.argument(
    "folder",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
def add(*, config_path: Path | None, dry_run: bool, system: str | None, folder: Path) -> None:
    """Upload the packages in DIR, and lock them by their hashes.

    DIR has all packages of one version: those of SchedMD's debian folder, or a distribution's.
    cluster.yaml takes them by `slurm.packages: locked`, and the next deploy builds images of them.
    """
    from toolkit.deploy import deb, image_build_stack, names, package_folder, package_store
    from toolkit.deploy.image_lock import ImageLock
    from toolkit.deploy.session import connected
    from toolkit.output import reporter

    path = find_config_file(config_path)
    config, lock = load(path), ImageLock.beside(path)
    system = _system(config, system)
    debs = deb.read_folder(folder)
    with connected(config) as clients:
        bucket = names.images_bucket(config, clients.account)
        row = package_folder.lock_row(
            debs,
            str(folder),
            system,
            lambda item: package_store.url_of(config, bucket, item),
        )
        if not dry_run:
            report = reporter()
            resources = image_build_stack.prepare_stack(config, clients, report)
            store = package_store.PackageStore(clients, resources.bucket)
            with report.phase("Uploading packages") as phase:
                uploaded = 0
                for number, (item, entry) in enumerate(zip(debs, row.packages, strict=True), 1):
                    phase.update(item.file, done=number, total=len(debs))
                    uploaded += store.add(item, entry.url)
                phase.result(f"{uploaded} of {len(debs)}")
            lock.write_packages(row)
    click.echo(f"{'would name' if dry_run else 'named'} {row} in {lock.path}: {len(debs)} packages")
    for line in _next_steps(config, row):
        click.echo(line)


@command.command("list")
@config_option
@json_option
def list_(*, config_path: Path | None, as_json: bool) -> None:
    """List the lock file's packages, and mark the version that images take."""
    from toolkit.deploy.image_lock import ImageLock
    from toolkit.output import print_json, table

    path = find_config_file(config_path)
    config, rows = load(path), ImageLock.beside(path).read().packages
    if as_json:
        print_json([{"used": _is_used(config, row), "packages": row} for row in rows])
        return
    lines = [
        (
            row.version,
            f"{row.system} {row.architecture}",
            "yes" if _is_used(config, row) else "",
            item.name,
            item.sha256[:SHA_SHOWN],
            item.url,
        )
        for row in rows
        for item in row.packages
    ]
    headers = ("VERSION", "SYSTEM", "USED", "PACKAGE", "SHA-256", "FROM")
    click.echo(table(headers, lines) if lines else "the lock file names no packages")


def _system(config: ClusterConfig, system: str | None) -> str:
    import re

    from toolkit.config import types
    from toolkit.config.base_image import base_system

    name = system or base_system(config.images.base.name, config.images.base.system)
    if not re.fullmatch(types.SYSTEM, name):
        raise click.UsageError(
            f"expected --system: {types.WORDS[types.SYSTEM]}"
            if not name
            else f"--system: expected {types.WORDS[types.SYSTEM]}, found {name!r}"
        )
    return name


def _is_used(config: ClusterConfig, row: SlurmPackages) -> bool:
    from toolkit.config.base_image import base_system
    from toolkit.deploy import package_lock

    base = config.images.base
    return (
        config.slurm.packages == "locked"
        and config.slurm.version == row.series
        and package_lock.is_for(row, base_system(base.name, base.system))
    )


def _next_steps(config: ClusterConfig, row: SlurmPackages) -> list[str]:
    wanted = {"packages": "locked", "version": f'"{row.series}"'}
    current = {"packages": config.slurm.packages, "version": f'"{config.slurm.version}"'}
    settings = ", ".join(
        f"{key}: {value}" for key, value in wanted.items() if value != current[key]
    )
    return [f"in cluster.yaml, set slurm: {{{settings}}}"] if settings else []
