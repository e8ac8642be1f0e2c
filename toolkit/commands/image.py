"""`toolkit image`: build and list machine images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import config_option, dry_run_option, json_option, load

if TYPE_CHECKING:
    from pathlib import Path


@click.group("image", cls=SuggestingGroup)
def command() -> None:
    """Build and list machine images."""


@command.command("build")
@config_option
@dry_run_option
def build(*, config_path: Path | None, dry_run: bool) -> None:
    """Build the missing head and compute images, side by side."""
    from toolkit.deploy import image_build_stack, images
    from toolkit.deploy.session import connected
    from toolkit.output import reporter

    config = load(config_path)
    with connected(config) as clients:
        ec2 = clients.client("ec2")
        base = images.find_base(ec2, config)
        if dry_run:
            images_by_name = images.find(
                ec2, [spec.name for spec in images.required_images(config, base)]
            )
            for spec in images.required_images(config, base):
                click.echo(
                    f"{spec.name}: {'exists' if spec.name in images_by_name else 'would be built'}"
                )
            return
        for kind, image in image_build_stack.ensure_images(
            config, clients, base, reporter()
        ).items():
            click.echo(f"{kind}: {image}")


@command.command("list")
@config_option
@json_option
def list_(*, config_path: Path | None, as_json: bool) -> None:
    """List the images, and mark those that this configuration uses."""
    from toolkit.deploy import images, names
    from toolkit.deploy.session import connected
    from toolkit.output import print_json, table

    config = load(config_path)
    with connected(config) as clients:
        ec2 = clients.client("ec2")
        images_by_name = images.find(ec2, [f"toolkit-{kind}-*" for kind in names.IMAGE_KINDS])
        used_names = {
            spec.name for spec in images.required_images(config, images.find_base(ec2, config))
        }
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
