"""`toolkit login`: a shell on a login node, or on the head node."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, load
from toolkit.errors import DeployError, HeadNotReady

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients

HOST_KEY = "/srv/head/ssh/host_ed25519_key.pub"
CREDENTIALS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"),
    "AWS_CREDENTIAL_EXPIRATION",
    *("AWS_PROFILE", "AWS_DEFAULT_PROFILE"),
)
"""The AWS CLI's variables that say whose credentials it uses."""


@click.command("login", context_settings={"ignore_unknown_options": True})
@config_option
@click.option(
    "--as", "user", metavar="USER", help="Be this user of cluster.yaml, and not an admin."
)
@click.option("--head", "on_head", is_flag=True, help="The head node, also where login nodes are.")
@click.option("--ssh-config", is_flag=True, help="Print the lines for ~/.ssh/config, and stop.")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
def command(
    *,
    config_path: Path | None,
    user: str | None,
    on_head: bool,
    ssh_config: bool,
    argv: tuple[str, ...],
) -> None:
    """Open an admin's or a user's shell on a login node.

    Without login nodes, it is on the head node. On AWS an admin's shell is of ssm-user:
    `sudo -i` makes it root.

    access.login in cluster.yaml is the command for it, and access.login_as with --as. ARGV is
    appended to that command.
    """
    from toolkit.deploy.session import connected

    config = load(config_path)
    if user is not None:
        _check_user(config, user)
    if on_head:
        _check_head_is_open(config, user, ssh_config=ssh_config)
    with connected(config) as clients:
        name, instance = _target(clients, config, user or "", on_head=on_head)
        host_key = _host_key(clients, config, name) if ssh_config else ""
        environment = login_environment(config, os.environ, clients.key_variables())
    if ssh_config:
        click.echo(ssh_config_text(config, instance, host_key, user), nl=False)
        return
    login_words = [*login_argv(config, instance, user), *argv]
    program = _program(login_words[0])
    # S606: without a shell is the point; this process becomes the session.
    os.execve(program, login_words, environment)  # noqa: S606


def login_argv(config: ClusterConfig, instance: str, user: str | None = None) -> list[str]:
    """Return the words of access.login, or login_as, with their placeholders filled in."""
    words = config.access.login if user is None else config.access.login_as
    return _filled(words, config, instance, user or "")


def login_environment(
    config: ClusterConfig, environ: Mapping[str, str], keys: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of the session's program.

    Where cluster.yaml names credentials, it has the toolkit's own `keys`. The AWS CLI takes such
    variables before all else, and a profile's other settings as well.
    """
    from toolkit.deploy.session import credentials_path

    profile, path = config.aws.profile, credentials_path(config)
    if profile is None and path is None:
        return dict(environ)
    environment = {name: value for name, value in environ.items() if name not in CREDENTIALS}
    if profile is not None:
        environment["AWS_PROFILE"] = profile
    if path is not None:
        environment["AWS_SHARED_CREDENTIALS_FILE"] = str(path)
    return {**environment, **keys}


def ssh_config_text(
    config: ClusterConfig, instance: str, host_key: str, user: str | None = None
) -> str:
    """Return the lines for ~/.ssh/config and ~/.ssh/known_hosts.

    The host key comes by the admin's own connection, so the first ssh asks nothing.
    """
    words = _filled(config.access.ssh_proxy, config, instance, "")
    proxy = shlex.join([_name_or_path(words[0]), *words[1:]])
    alias = f"{config.cluster}-{instance}"
    kind, key = host_key.split()[:2]
    place = "login node" if config.login_nodes.count else "head node"
    return (
        f"# ~/.ssh/config; print it again when the {place} was replaced\n"
        f"Host {config.cluster}\n"
        f"    User {user or 'USER'}\n"
        f"    HostKeyAlias {alias}\n"
        f"    ProxyCommand {proxy}\n"
        f"# The next line belongs, without '# ', to ~/.ssh/known_hosts:\n"
        f"# {alias} {kind} {key}\n"
    )


def _target(
    clients: Clients, config: ClusterConfig, user: str, *, on_head: bool
) -> tuple[str, str]:
    """Return the name and the instance; the head's name is empty."""
    from toolkit.deploy import login_nodes
    from toolkit.deploy.head import Head

    if on_head or not config.login_nodes.count:
        return "", Head(clients, config).instance_id
    chosen = login_nodes.choose(login_nodes.find(clients, config), user)
    return chosen.name, chosen.instance_id


def _host_key(clients: Clients, config: ClusterConfig, name: str) -> str:
    """Return the public key of the instance's sshd.

    It comes from files that root alone can write.
    """
    from toolkit.deploy.head import Head
    from toolkit.explain import head_facts

    head = Head(clients, config)
    if not name:
        return head.run(["cat", HOST_KEY])
    reports = head_facts.fetch_report(head, "pass").login_nodes
    keys = [report.host_key for report in reports if report.name == name and report.host_key]
    if not keys:
        raise HeadNotReady(
            f"{name} has not reported its host key yet",
            next_step="`toolkit status` shows when it is up",
        )
    return keys[0]


def _filled(words: Sequence[str], config: ClusterConfig, instance: str, user: str) -> list[str]:
    values = {
        "instance_id": instance,
        "region": config.aws.region,
        "cluster": config.cluster,
        "user": user,
    }
    return [word.format(**values) for word in words]


def _check_user(config: ClusterConfig, user: str) -> None:
    names = [item.name for item in config.users]
    if user not in names:
        raise DeployError(
            f"cluster {config.cluster} has no user {user!r}",
            next_step=f"name one of cluster.yaml's users: {', '.join(names) or 'it has none'}",
        )


def _check_head_is_open(config: ClusterConfig, user: str | None, *, ssh_config: bool) -> None:
    if config.login_nodes.count and (user is not None or ssh_config):
        raise DeployError(
            "users have no login on the head node of a cluster with login nodes",
            next_step="leave out --head; `toolkit login --head` opens an admin's shell there",
        )


def _name_or_path(name: str) -> str:
    return name if shutil.which(name) else _program(name)


def _program(name: str) -> str:
    """Find a program on PATH, or beside this Python.

    The second is for a virtual environment that is not activated.
    """
    interpreter_directory = Path(sys.executable).parent
    program = shutil.which(name) or shutil.which(name, path=str(interpreter_directory))
    if program is None:
        raise DeployError(f"{name} is not on PATH", next_step="install it, or change access.login")
    return program
