"""The site's key and users, on a cloud node of a join that has no shared filesystem.

Each step may be repeated.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import BootError
from slurmplugins.model import site_key
from slurmplugins.node import setup_command
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from slurmplugins.config.node import SiteAccounts
    from slurmplugins.system.command import Runner

MUNGE_KEY: Final = Path("/etc/munge/munge.key")
MUNGE_UNIT: Final = "munge.service"
_SECONDS: Final = 60.0


def write_users(root: Path, accounts: SiteAccounts) -> None:
    """Write the list of users, as the head of a cluster would.

    Each has a home on this node alone: the site's is not in the cloud.
    """
    users = [
        {"name": name, "uid": uid, "gid": gid, "home": f"/home/{name}"}
        for name, uid, gid in accounts.users
    ]
    path = root / paths.users_file(paths.SHARED).relative_to("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(users).encode(), mode=0o644)


def make_homes(root: Path, accounts: SiteAccounts) -> None:
    """Make the homes of users whose accounts exist."""
    for name, uid, gid in accounts.users:
        home = root / "home" / name
        home.mkdir(parents=True, exist_ok=True)
        shutil.chown(home, uid, gid)
        home.chmod(0o700)


def set_slurm_user(accounts: SiteAccounts, runner: Runner) -> None:
    """Give SlurmUser the site's ids: slurmd takes orders from this uid alone.

    Raises BootError if another account has them.
    """
    name, uid, gid = accounts.slurm_user
    if uid == 0:
        return
    if (group := _id_of(runner, "group", name)) != gid:
        _account(runner, "groupadd" if group is None else "groupmod", "--gid", str(gid), name)
    user = _id_of(runner, "passwd", name)
    if user is None:
        _account(runner, "useradd", "--system", "--uid", str(uid), "--gid", str(gid), name)
    elif user != uid:
        _account(runner, "usermod", "--uid", str(uid), "--gid", str(gid), name)
    owned = (paths.STATE, paths.LOGS, paths.SLURM_LOGS)
    setup_command.run(
        runner, ["/usr/bin/chown", "-R", f"{name}:{name}", *map(str, owned)], timeout=_SECONDS
    )


def write_key(root: Path, secret: str, runner: Runner) -> None:
    """Write the site's key, and start munged where it is munge's.

    No other user can read it even while it is written. Raises BootError.
    """
    key = site_key.parse(secret)
    is_munge = key.name == site_key.MUNGE
    target = MUNGE_KEY if is_munge else paths.SLURM_ETC / key.name
    owner = "munge" if is_munge else "slurm"
    path = root / target.relative_to("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, key.content, mode=0o400 if is_munge else 0o600)
    try:
        shutil.chown(path, owner, owner)
    except LookupError as error:
        raise BootError(f"the image has no user {owner}, which the site's key is for") from error
    if is_munge:
        for argv in (["unmask"], ["restart"]):
            setup_command.run(runner, ["/usr/bin/systemctl", *argv, MUNGE_UNIT], timeout=_SECONDS)


def _id_of(runner: Runner, database: str, name: str) -> int | None:
    result = runner.run(["/usr/bin/getent", database, name], timeout=_SECONDS)
    fields = result.stdout.strip().split(":")
    return int(fields[2]) if len(fields) > 2 and fields[2].isdecimal() else None  # noqa: PLR2004


def _account(runner: Runner, program: str, *argv: str) -> None:
    setup_command.run(runner, [f"/usr/sbin/{program}", *argv], timeout=_SECONDS)
