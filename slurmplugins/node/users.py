"""The users' accounts on an instance, from the cluster's list: added, never removed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import BootError
from slurmplugins.model import json_input

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.system.command import Runner

FIRST_UID: Final = 1000
"""Lower ids are the system's own accounts, which the list must not name."""

_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)
_PATH: Final = re.compile(r"(/[A-Za-z0-9._-]{1,64}){1,16}", re.ASCII)
_ALREADY_EXISTS: Final = 9
"""Exit code of useradd and groupadd when the name is there already."""

_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class User:
    """A user's account, as the list has it."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    groups: tuple[str, ...]


def parse(text: str) -> tuple[User, ...]:
    """Parse the list, and check every entry.

    Raises BootError that names the first bad one.
    """
    try:
        data = json_input.loads(text)
    except ValueError as error:
        raise BootError(f"the list of users is not JSON: {error}") from error
    if not isinstance(data, list):
        raise BootError("the list of users is not a list")
    return tuple(_user(item) for item in data)


def create_missing(users: tuple[User, ...], runner: Runner) -> None:
    """Create the accounts and groups that are missing.

    Home directories are on the shared filesystem and not created here. Safe to repeat.
    """
    for user in users:
        _run(runner, ["groupadd", "--gid", str(user.gid), "--", user.name])
        account = ["useradd", "--uid", str(user.uid), "--gid", str(user.gid)]
        account += ["--home-dir", user.home, "--no-create-home", "--shell", user.shell]
        _run(runner, [*account, "--", user.name])
        for group in user.groups:
            _run(runner, ["groupadd", "--", group])
            _run(runner, ["usermod", "--append", "--groups", group, user.name])


class UserListFollower:
    """The applied state of the user list, which changes with the file."""

    def __init__(self, path: Path, runner: Runner) -> None:
        self._path = path
        self._runner = runner
        self._applied_signature: tuple[int, int] | None = None

    def follow(self) -> None:
        """Apply the list if it has changed.

        An absent list means no users. Raises BootError or OSError.
        """
        try:
            file_status = self._path.stat()
        except FileNotFoundError:
            return
        signature = (file_status.st_mtime_ns, file_status.st_size)
        if signature == self._applied_signature:
            return
        if file_status.st_uid != 0 or file_status.st_mode & 0o022:
            raise BootError(
                f"{self._path} must be root's, and writable by root alone; it is not used"
            )
        create_missing(parse(self._path.read_text(encoding="utf-8")), self._runner)
        self._applied_signature = signature


def _run(runner: Runner, argv: list[str]) -> None:
    result = runner.run([f"/usr/sbin/{argv[0]}", *argv[1:]], timeout=_TIMEOUT)
    if result.returncode not in {0, _ALREADY_EXISTS}:
        raise BootError(f"{argv[0]} {argv[-1]} failed: {result.stderr.strip()[-200:]}")


def _user(item: Any) -> User:
    if not isinstance(item, dict):
        raise BootError(f"the list of users has an invalid entry: {item!r}")
    groups = item.get("groups", [])
    user = User(
        name=_match(_NAME, item.get("name")),
        uid=_number(item.get("uid")),
        gid=_number(item.get("gid", item.get("uid"))),
        home=_match(_PATH, item.get("home")),
        shell=_match(_PATH, item.get("shell", "/bin/bash")),
        groups=tuple(_match(_NAME, group) for group in groups),
    )
    if ".." in user.home or ".." in user.shell:
        raise BootError(f"the list of users has an unsafe path: {user.home!r}")
    return user


def _match(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise BootError(f"the list of users has an invalid value: {value!r}")
    return value


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not FIRST_UID <= value < 2**31:
        raise BootError(f"the list of users has an invalid uid or gid: {value!r}")
    return value
