"""The users' accounts on an instance, from the cluster's list: added and locked, never removed.

An account that is deleted would give its uid, and so its files, to the next user.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import BootError
from slurmplugins.model import json_input
from slurmplugins.node import setup_command
from slurmplugins.node.root_file import RootFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.system.command import Runner

FIRST_UID: Final = 1000
"""Lower ids are the system's own accounts, which the list must not name."""

_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}", re.ASCII)
_SSH_KEY: Final = re.compile(r"[a-z0-9@.-]{1,64} [A-Za-z0-9+/]{1,8192}={0,2}", re.ASCII)
_PATH: Final = re.compile(r"(/[A-Za-z0-9._-]{1,64}){1,16}", re.ASCII)
_ALREADY_EXISTS: Final = 9
"""Exit code of useradd and groupadd when the name is there already."""

_TIMEOUT: Final = 30.0
_FIELDS: Final = {"passwd": 7, "group": 4, "shadow": 9}
"""The fields of a line: passwd(5), group(5), shadow(5)."""
_EXPIRY: Final = 7
"""The field of shadow(5) that has the account's expiry date."""

NO_SHELL: Final = "/usr/sbin/nologin"
"""The shell of a user who left."""

EXPIRED: Final = "1"
"""The expiry date of a locked account, in days since 1970. PAM refuses such an account to sshd, su
and cron, whatever key or password it has (usermod(8))."""


@dataclass(frozen=True, slots=True)
class User:
    """A user's account, as the list has it."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    groups: tuple[str, ...]
    left: bool = False
    """The user is in cluster.yaml no more. Name and uid stay hers."""
    ssh_keys: tuple[str, ...] = ()
    """The public keys that open a session as this user, each a type and base64."""


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


def check_ids(users: tuple[User, ...], runner: Runner) -> None:
    """Raise BootError where another account has a user's name or id.

    A system account that is taken for a user would get a shell, keys and jobs. Call it before
    anything is changed.
    """
    accounts, groups = _rows(runner, "passwd"), _rows(runner, "group")
    for user in users:
        _check_id("user", user.name, user.uid, accounts)
        _check_id("group", user.name, user.gid, groups)


def _check_id(kind: str, name: str, number: int, rows: list[list[str]]) -> None:
    """Raise BootError unless name and number belong together, or are both free."""
    for row in rows:
        known_name, known_number = row[0], row[2]
        if known_name == name and known_number != str(number):
            raise BootError(
                f"{name} can't be a user: this instance has a {kind} {name} with id "
                f"{known_number}, not {number}; in cluster.yaml, choose another name"
            )
        if known_number == str(number) and known_name != name:
            raise BootError(
                f"{name} can't have id {number}: this instance has a {kind} {known_name} with it; "
                "in cluster.yaml, choose another uid"
            )


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


def set_locks(users: tuple[User, ...], runner: Runner) -> tuple[User, ...]:
    """Lock who left, and unlock who came back.

    Returns the users whose account changed. Jobs that run go on: they need no login. Safe to
    repeat.
    """
    shells = {row[0]: row[-1] for row in _rows(runner, "passwd")}
    expiry_dates = {row[0]: row[_EXPIRY] for row in _rows(runner, "shadow")}
    changed = []
    for user in users:
        has_no_shell = shells.get(user.name) == NO_SHELL
        has_expired = expiry_dates.get(user.name) == EXPIRED
        if has_no_shell == has_expired == user.left:
            continue
        if user.left:
            account = ["--expiredate", EXPIRED, "--shell", NO_SHELL, "--groups", ""]
        else:
            account = ["--expiredate", "", "--shell", user.shell]
        _run(runner, ["usermod", *account, user.name])
        changed.append(user)
    return tuple(changed)


def _rows(runner: Runner, database: str) -> list[list[str]]:
    """Return the fields of each line of a database of accounts."""
    result = setup_command.run(runner, ["/usr/bin/getent", database], timeout=_TIMEOUT)
    rows = (line.split(":") for line in result.stdout.splitlines())
    return [row for row in rows if len(row) >= _FIELDS[database]]


class UserListFollower:
    """The applied state of the user list, which changes with the file."""

    def __init__(
        self,
        path: Path,
        runner: Runner,
        then: Callable[[tuple[User, ...]], object] = lambda _: None,
    ) -> None:
        """Keep the parts.

        A new list goes to `then` as well, after its accounts are there.
        """
        self._file = RootFile(path)
        self._runner = runner
        self._then = then

    def follow(self) -> None:
        """Apply the list if it has changed.

        An absent list means no users. Raises BootError or OSError.
        """
        self._file.follow(self._apply)

    def _apply(self, text: str) -> None:
        users = parse(text)
        check_ids(users, self._runner)
        create_missing(users, self._runner)
        set_locks(users, self._runner)
        self._then(users)


def _run(runner: Runner, argv: list[str]) -> None:
    setup_command.run(
        runner,
        [f"/usr/sbin/{argv[0]}", *argv[1:]],
        timeout=_TIMEOUT,
        accepted=(0, _ALREADY_EXISTS),
        shown=f"{argv[0]} {argv[-1]}",
    )


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
        left=item.get("left") is True,
        ssh_keys=ssh_keys(item.get("ssh_keys", [])),
    )
    if ".." in user.home or ".." in user.shell:
        raise BootError(f"the list of users has an unsafe path: {user.home!r}")
    return user


def ssh_keys(lines: Any) -> tuple[str, ...]:
    """Check the SSH keys of one user.

    Raises BootError for more than a type and base64: sshd would read options.
    """
    if not isinstance(lines, list):
        raise BootError("the SSH keys of a user are not a list")
    for line in lines:
        if not isinstance(line, str) or not _SSH_KEY.fullmatch(line):
            raise BootError(f"an SSH key is not a type and base64: {str(line)[:60]!r}")
    return tuple(lines)


def _match(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise BootError(f"the list of users has an invalid value: {value!r}")
    return value


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not FIRST_UID <= value < 2**31:
        raise BootError(f"the list of users has an invalid uid or gid: {value!r}")
    return value
