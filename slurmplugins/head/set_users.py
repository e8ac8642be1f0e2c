"""Brings the head's accounts, and the users' SSH keys, to the cluster's list."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import BootError
from slurmplugins.head import user_list
from slurmplugins.model import json_input
from slurmplugins.node import setup_command, users as accounts
from slurmplugins.node.root_file import check_owner
from slurmplugins.node.sessions import Sessions
from slurmplugins.system.files import write_text

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.node.users import User
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner

_TIMEOUT: Final = 120.0


@dataclass(frozen=True, slots=True)
class Declared:
    """The users of cluster.yaml, with their keys."""

    users: tuple[User, ...]
    login_nodes: bool = False
    """There are login nodes: users open no session on the head."""


def parse(text: str) -> Declared:
    """Parse the playbook's input: `users`, `ssh_keys` by the user's name, and `login_nodes`.

    Raises BootError.
    """
    try:
        data = json_input.loads(text)
    except ValueError as error:
        raise BootError(f"the users are not JSON: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("ssh_keys"), dict):
        raise BootError("the users' input needs users and ssh_keys")
    users = accounts.parse(json.dumps(data.get("users")))
    keys = {user.name: accounts.ssh_keys(data["ssh_keys"].get(user.name, [])) for user in users}
    return Declared(
        tuple(replace(user, ssh_keys=keys[user.name]) for user in users),
        data.get("login_nodes") is True,
    )


@dataclass(frozen=True, slots=True)
class HeadUsers:
    """The head's accounts and keys, with the parts that change them."""

    shared: Path
    root: Path
    """The directory that holds the head's files: `/`, or another one in tests."""
    runner: Runner
    clock: Clock

    def apply(self, declared: Declared) -> bool:
        """Bring list, accounts and keys to what is declared.

        Returns whether anything changed. Who left is locked, and her keys are gone, before her
        sessions end: she can't open another one. Raises BootError or OSError. Safe to repeat.
        """
        users = user_list.merge(self._previous(), declared.users)
        accounts.check_ids(users, self.runner)
        sysusers = self.root / paths.SYSUSERS.relative_to("/")
        changed = write_text(sysusers, user_list.sysusers(users))
        self._create_accounts(sysusers)
        changed |= bool(accounts.set_locks(users, self.runner))
        sessions = Sessions(self.root, self.runner, self.clock)
        changed |= sessions.allow(() if declared.login_nodes else users)
        sessions.end(users)
        # Last: until then, a repeated run finds the same previous list.
        text = json.dumps(user_list.to_json(users), indent=2) + "\n"
        return write_text(paths.users_file(self.shared), text) or changed

    def _previous(self) -> tuple[User, ...]:
        path = paths.users_file(self.shared)
        try:
            file_status = path.stat()
        except FileNotFoundError:
            return ()
        check_owner(path, file_status)
        return accounts.parse(path.read_text(encoding="utf-8"))

    def _create_accounts(self, sysusers: Path) -> None:
        argv = ["/usr/bin/systemd-sysusers", str(sysusers)]
        setup_command.run(self.runner, argv, timeout=_TIMEOUT, shown=argv[0], max_output=300)
