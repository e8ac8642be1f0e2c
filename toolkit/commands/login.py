"""`toolkit login`: a shell on the head node."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, load
from toolkit.errors import DeployError

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig


@click.command("login", context_settings={"ignore_unknown_options": True})
@config_option
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def command(*, config_path: Path | None, argv: tuple[str, ...]) -> None:
    """Open a shell on the head node.

    access.login in cluster.yaml is the command for it. ARGV is appended to that command.
    """
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected

    config = load(config_path)
    with connected(config) as clients:
        instance = Head(clients, config).instance_id
    login_words = [*login_argv(config, instance), *argv]
    program = _program(login_words[0])
    # S606: without a shell is the point; this process becomes the session.
    os.execv(program, login_words)  # noqa: S606


def login_argv(config: ClusterConfig, instance: str) -> list[str]:
    """Return the words of access.login with their placeholders filled in."""
    return [
        word.format(instance_id=instance, region=config.aws.region, cluster=config.cluster)
        for word in config.access.login
    ]


def _program(name: str) -> str:
    """Find a program on PATH, or beside this Python.

    The second is for a virtual environment that is not activated.
    """
    interpreter_directory = Path(sys.executable).parent
    program = shutil.which(name) or shutil.which(name, path=str(interpreter_directory))
    if program is None:
        raise DeployError(f"{name} is not on PATH", next_step="install it, or change access.login")
    return program
