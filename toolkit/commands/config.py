"""`toolkit config`: check cluster.yaml, print its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, find, json_option, load
from toolkit.errors import ConfigInvalid

if TYPE_CHECKING:
    from pathlib import Path


@click.group("config")
def command() -> None:
    """Check cluster.yaml, print its schema."""


@command.command("check")
@config_option
@json_option
def check(config_path: Path | None, as_json: bool) -> int:
    """Report every problem in cluster.yaml, each with its line."""
    from toolkit.output import print_json

    path = find(config_path)
    if not as_json:
        config = load(path)
        nodes = sum(pool.count for pool in config.pools.values())
        click.echo(f"{path}: good; cluster {config.cluster}, up to {nodes} nodes")
        return 0
    try:
        load(path)
    except ConfigInvalid as error:
        problems = [
            {"line": problem.line, "path": problem.path, "message": problem.message}
            for problem in error.problems
        ]
        print_json({"valid": False, "problems": problems})
        return error.exit_code
    print_json({"valid": True, "problems": []})
    return 0


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of cluster.yaml, for editors."""
    from toolkit.config import json_schema
    from toolkit.output import print_json

    print_json(json_schema())


@command.command("show")
@config_option
def show(config_path: Path | None) -> None:
    """Print cluster.yaml as it is understood, with every default filled in."""
    from toolkit.output import print_json

    print_json(load(config_path).model_dump(mode="json"))
