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
    """Build the head and compute images that aren't there yet, side by side."""
    from toolkit.deploy import image_build_stack, images
    from toolkit.deploy.session import connected
    from toolkit.output import reporter

    config = load(config_path)
    with connected(config) as clients:
        ec2 = clients.client("ec2")
        base = images.find_base(ec2, config)
        if dry_run:
            found = images.find(ec2, [spec.name for spec in images.wanted(config, base)])
            for spec in images.wanted(config, base):
                click.echo(f"{spec.name}: {'there' if spec.name in found else 'would be built'}")
            return
        for kind, image in image_build_stack.ensure(config, clients, base, reporter()).items():
            click.echo(f"{kind}: {image}")


@command.command("list")
@config_option
@json_option
def list_(*, config_path: Path | None, as_json: bool) -> None:
    """List the images there are, and which of them this configuration uses."""
    from toolkit.deploy import images, names
    from toolkit.deploy.session import connected
    from toolkit.output import print_json, table

    config = load(config_path)
    with connected(config) as clients:
        ec2 = clients.client("ec2")
        found = images.find(ec2, [f"toolkit-{kind}-*" for kind in names.IMAGE_KINDS])
        used = {spec.name for spec in images.wanted(config, images.find_base(ec2, config))}
    ordered = sorted(found.values(), key=lambda image: image.created)
    if as_json:
        print_json([{"id": i.id, "name": i.name, "used": i.name in used} for i in ordered])
        return
    rows = [
        (image.name, image.id, image.state, image.created, "yes" if image.name in used else "")
        for image in ordered
    ]
    click.echo(table(("NAME", "ID", "STATE", "CREATED", "USED"), rows))
