"""`toolkit image`: build, list and pin machine images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands import image_packages
from toolkit.commands.exit_codes import DIFFERS, SAME, ComparingCommand
from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import (
    config_option,
    dry_run_option,
    find_config_file,
    json_option,
    load,
)

if TYPE_CHECKING:
    from pathlib import Path


@click.group("image", cls=SuggestingGroup)
def command() -> None:
    """Build, list and pin machine images."""


command.add_command(image_packages.command)


@command.command("build")
@config_option
@dry_run_option
def build(*, config_path: Path | None, dry_run: bool) -> None:
    """Build the missing head and compute images, side by side."""
    from toolkit.deploy import image_build_stack, image_lock, images
    from toolkit.deploy.session import connected
    from toolkit.output import reporter

    path = find_config_file(config_path)
    config, lock = load(path), image_lock.ImageLock.beside(path)
    with connected(config) as clients:
        ec2 = clients.client("ec2")
        source = image_lock.find_input(ec2, config, lock)
        if dry_run:
            images_by_name = images.find(
                ec2, [spec.name for spec in images.required_images(config, source)]
            )
            for spec in images.required_images(config, source):
                click.echo(
                    f"{spec.name}: {'exists' if spec.name in images_by_name else 'would be built'}"
                )
            return
        if lock.pin_for(config) is None:
            lock.write(config, source.base)
        for kind, image in image_build_stack.ensure_images(
            config, clients, source, reporter()
        ).items():
            click.echo(f"{kind}: {image}")


@command.command("check", cls=ComparingCommand)
@config_option
@json_option
def check(*, config_path: Path | None, as_json: bool) -> int:
    """Say whether a newer base image exists than the lock file names.

    Exit code 0: none does; 2: one does, and `toolkit image update` takes it; 1: any error. It
    changes nothing.
    """
    from toolkit.deploy import image_lock, images
    from toolkit.deploy.session import connected
    from toolkit.output import print_json

    path = find_config_file(config_path)
    config, lock = load(path), image_lock.ImageLock.beside(path)
    pin = lock.pin_for(config)
    with connected(config) as clients:
        newest = images.find_base(clients.client("ec2"), config)
    is_newer = pin is not None and pin.id != newest.id
    if as_json:
        print_json({"pinned": pin, "newest": newest, "newer": is_newer})
        return DIFFERS if is_newer else SAME
    if pin is None:
        click.echo(
            f"{lock.path} pins no base image for {config.aws.region}; deploy uses the newest"
        )
    else:
        click.echo(f"pinned  {pin.id}  {pin.name}  {pin.created}")
    click.echo(f"newest  {newest.id}  {newest.name}  {newest.created}")
    if is_newer:
        click.echo("a newer base image exists: `toolkit image update`, then `toolkit plan`")
    return DIFFERS if is_newer else SAME


@command.command("update")
@config_option
@dry_run_option
def update(*, config_path: Path | None, dry_run: bool) -> None:
    """Pin the newest base image in the lock file.

    The next deploy builds images on it. Running instances keep theirs.
    """
    from toolkit.deploy import image_lock, images
    from toolkit.deploy.session import connected

    path = find_config_file(config_path)
    config, lock = load(path), image_lock.ImageLock.beside(path)
    pin = lock.pin_for(config)
    with connected(config) as clients:
        newest = images.find_base(clients.client("ec2"), config)
    if pin is not None and pin.id == newest.id:
        click.echo(f"{newest.id} ({newest.name}) is pinned already")
        return
    if not dry_run:
        lock.write(config, newest)
    verb = "would pin" if dry_run else "pinned"
    click.echo(f"{verb} {newest.id} ({newest.name}) in {lock.path}")


@command.command("list")
@config_option
@json_option
def list_(*, config_path: Path | None, as_json: bool) -> None:
    """List the images, and mark those that this configuration uses."""
    from toolkit.deploy import image_lock, images, names
    from toolkit.deploy.session import connected
    from toolkit.output import print_json, table

    path = find_config_file(config_path)
    config, lock = load(path), image_lock.ImageLock.beside(path)
    with connected(config) as clients:
        ec2 = clients.client("ec2")
        images_by_name = images.find(ec2, [f"toolkit-{kind}-*" for kind in names.IMAGE_KINDS])
        source = image_lock.find_input(ec2, config, lock)
        used_names = {spec.name for spec in images.required_images(config, source)}
    images_by_age = sorted(images_by_name.values(), key=lambda image: image.created)
    if as_json:
        print_json(
            [{"id": i.id, "name": i.name, "used": i.name in used_names} for i in images_by_age]
        )
        return
    rows = [
        (
            image.name,
            image.id,
            image.state,
            image.created,
            "yes" if image.name in used_names else "",
        )
        for image in images_by_age
    ]
    click.echo(table(("NAME", "ID", "STATE", "CREATED", "USED"), rows))
