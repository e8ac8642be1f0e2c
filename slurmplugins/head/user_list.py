"""The cluster's list of users over time: who is in it, and who left. No input or output."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from slurmplugins.errors import BootError
from slurmplugins.node.users import NO_SHELL

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from slurmplugins.node.users import User


def merge(previous: Iterable[User], declared: Iterable[User]) -> tuple[User, ...]:
    """Return the declared users, then everybody who left.

    Raises BootError where a uid would change its user, or a user her uid: her files would be
    somebody else's.
    """
    users = tuple(declared)
    names = {user.name: user for user in users}
    uids = {user.uid: user for user in users}
    left = []
    for known in previous:
        same_name, same_uid = names.get(known.name), uids.get(known.uid)
        if same_name is not None and same_name.uid != known.uid:
            raise BootError(
                f"user {known.name} has uid {known.uid}, and her files have it; "
                f"in cluster.yaml, set {known.uid} again instead of {same_name.uid}"
            )
        if same_uid is not None and same_uid.name != known.name:
            raise BootError(
                f"uid {known.uid} is of {known.name}, who left, and her files have it; "
                f"in cluster.yaml, give {same_uid.name} another uid"
            )
        if same_name is None:
            left.append(replace(known, left=True, groups=(), ssh_keys=()))
    return (*users, *left)


def to_json(users: Iterable[User]) -> list[dict[str, Any]]:
    """Return the list as `slurmplugins.node.users` parses it."""
    return [
        {
            "name": user.name,
            "uid": user.uid,
            "gid": user.gid,
            "home": user.home,
            "shell": user.shell,
            "groups": list(user.groups),
            **({"left": True} if user.left else {}),
            **({"ssh_keys": list(user.ssh_keys)} if user.ssh_keys else {}),
        }
        for user in users
    ]


def sysusers(users: Iterable[User]) -> str:
    """Return the list for systemd-sysusers.

    It makes all missing accounts in one call.
    """
    lines = []
    for user in users:
        shell = NO_SHELL if user.left else user.shell
        lines.append(f"g {user.name} {user.gid}")
        lines.append(f'u {user.name} {user.uid}:{user.gid} "Cluster user" {user.home} {shell}')
        lines.extend(f"m {user.name} {group}" for group in user.groups)
    return "".join(f"{line}\n" for line in lines)
