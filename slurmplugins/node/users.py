"""The users' accounts on an instance, from the cluster's root-owned list. Adds, never removes."""

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

_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,30}", re.ASCII)
_PATH: Final = re.compile(r"(/[A-Za-z0-9._-]{1,64}){1,16}", re.ASCII)
_HAS_IT: Final = 9
"""Exit code of useradd and groupadd when the name is there already."""

_TIMEOUT: Final = 30.0


@dataclass(frozen=True, slots=True)
class Person:
    """A user's account, as the list has it."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    groups: tuple[str, ...]


def parse(text: str) -> tuple[Person, ...]:
    """Parse the list, and check every entry.

    Raises BootError that names the first bad one.
    """
    try:
        data = json_input.loads(text)
    except ValueError as error:
        raise BootError(f"the list of users is not JSON: {error}") from error
    if not isinstance(data, list):
        raise BootError("the list of users is not a list")
    return tuple(_person(item) for item in data)


def ensure(people: tuple[Person, ...], runner: Runner) -> None:
    """Create the accounts and groups that are missing.

    Home directories are on the shared filesystem and not created here. Safe to repeat.
    """
    for person in people:
        _run(runner, ["groupadd", "--gid", str(person.gid), "--", person.name])
        account = ["useradd", "--uid", str(person.uid), "--gid", str(person.gid)]
        account += ["--home-dir", person.home, "--no-create-home", "--shell", person.shell]
        _run(runner, [*account, "--", person.name])
        for group in person.groups:
            _run(runner, ["groupadd", "--", group])
            _run(runner, ["usermod", "--append", "--groups", group, person.name])


class Follower:
    """Applies the list when it has changed since the last look."""

    def __init__(self, path: Path, runner: Runner) -> None:
        self._path = path
        self._runner = runner
        self._seen: tuple[int, int] | None = None

    def follow(self) -> None:
        """Apply the list if it has changed.

        An absent list means no users. Raises BootError or OSError.
        """
        try:
            facts = self._path.stat()
        except FileNotFoundError:
            return
        mark = (facts.st_mtime_ns, facts.st_size)
        if mark == self._seen:
            return
        if facts.st_uid != 0 or facts.st_mode & 0o022:
            raise BootError(f"{self._path} is not root's alone to write: not believed")
        ensure(parse(self._path.read_text(encoding="utf-8")), self._runner)
        self._seen = mark


def _run(runner: Runner, argv: list[str]) -> None:
    done = runner.run([f"/usr/sbin/{argv[0]}", *argv[1:]], timeout=_TIMEOUT)
    if done.returncode not in {0, _HAS_IT}:
        raise BootError(f"{argv[0]} {argv[-1]}: {done.stderr.strip()[-200:]}")


def _person(item: Any) -> Person:
    if not isinstance(item, dict):
        raise BootError(f"not a user: {item!r}")
    groups = item.get("groups", [])
    person = Person(
        name=_match(_NAME, item.get("name")),
        uid=_number(item.get("uid")),
        gid=_number(item.get("gid", item.get("uid"))),
        home=_match(_PATH, item.get("home")),
        shell=_match(_PATH, item.get("shell", "/bin/bash")),
        groups=tuple(_match(_NAME, group) for group in groups),
    )
    if ".." in person.home or ".." in person.shell:
        raise BootError(f"not a path for a user: {person.home!r}")
    return person


def _match(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise BootError(f"not fit for a user's entry: {value!r}")
    return value


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not FIRST_UID <= value < 2**31:
        raise BootError(f"not a user's number: {value!r}")
    return value
