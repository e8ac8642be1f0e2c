"""Brings the head's accounts, and the users' SSH keys on it, to the cluster's list."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import paths
from slurmplugins.errors import BootError
from slurmplugins.head import user_list
from slurmplugins.model import json_input
from slurmplugins.node import users as accounts
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.node.users import User
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import CommandResult, Runner

_KEY: Final = re.compile(r"[a-z0-9@.-]{1,64} [A-Za-z0-9+/]{1,8192}={0,2}", re.ASCII)
_TIMEOUT: Final = 120.0
_PASSES: Final = 20
_PAUSE: Final = 0.25
"""Between two looks for the processes of a user who left: ended ones wait for their parent."""
_NO_PROCESS: Final = 1
"""Exit code of pkill when nothing matches."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The users of cluster.yaml, and their keys by name."""

    users: tuple[User, ...]
    keys: dict[str, tuple[str, ...]]


def parse(text: str) -> Declared:
    """Parse the playbook's input: `users`, and `ssh_keys` by the user's name.

    Raises BootError.
    """
    try:
        data = json_input.loads(text)
    except ValueError as error:
        raise BootError(f"the users are not JSON: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("ssh_keys"), dict):
        raise BootError("the users' input needs users and ssh_keys")
    users = accounts.parse(json.dumps(data.get("users")))
    keys = {user.name: _keys(data["ssh_keys"].get(user.name, [])) for user in users}
    return Declared(users, keys)


def _keys(lines: Any) -> tuple[str, ...]:
    if not isinstance(lines, list):
        raise BootError("the SSH keys of a user are not a list")
    for line in lines:
        if not isinstance(line, str) or not _KEY.fullmatch(line):
            raise BootError(f"an SSH key is not a type and base64: {str(line)[:60]!r}")
    return tuple(lines)


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
        rows = user_list.to_json(users)
        changed = self._write(self._at(paths.SYSUSERS), user_list.sysusers(users))
        self._run(["/usr/bin/systemd-sysusers", str(self._at(paths.SYSUSERS))])
        changed |= bool(accounts.set_locks(users, self.runner))
        changed |= self._write_keys(declared.keys)
        logins = "".join(f"{user.name}\n" for user in users if not user.left)
        changed |= self._write(self._at(paths.LOGINS), logins)
        for user in users:
            if user.left:
                self._end_processes(user)
        # Last: until then, a repeated run finds the same previous list.
        text = json.dumps(rows, indent=2) + "\n"
        return self._write(paths.users_file(self.shared), text) or changed

    def _previous(self) -> tuple[User, ...]:
        path = paths.users_file(self.shared)
        try:
            file_status = path.stat()
        except FileNotFoundError:
            return ()
        accounts.check_owner(path, file_status)
        return accounts.parse(path.read_text(encoding="utf-8"))

    def _write_keys(self, keys: dict[str, tuple[str, ...]]) -> bool:
        """Write a file for each user with keys; delete all others."""
        directory = self._at(paths.SSH_KEYS)
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        wanted = {name: "".join(f"{key}\n" for key in lines) for name, lines in keys.items()}
        changed = False
        for path in sorted(directory.iterdir()):
            if not wanted.get(path.name):
                path.unlink()
                changed = True
        for name, text in wanted.items():
            if text:
                changed |= self._write(directory / name, text)
        return changed

    def _end_processes(self, user: User) -> None:
        """End her sessions, and all else of hers on the head.

        The head runs no jobs. Raises BootError if some of her processes stay.
        """
        for _ in range(_PASSES):
            # The kernel signals all of them under one lock: none escapes by forking (kill(2), -1).
            ids = ["--reuid", str(user.uid), "--regid", str(user.gid), "--clear-groups"]
            kill = ["/usr/bin/kill", "-KILL", "--", "-1"]
            self.runner.run(["/usr/bin/setpriv", *ids, *kill], timeout=_TIMEOUT)
            argv = ["/usr/bin/pkill", "--signal", "KILL", "--uid", str(user.uid)]
            result = self._run(argv, allowed=frozenset({0, _NO_PROCESS}))
            if result.returncode == _NO_PROCESS:
                return
            self.clock.sleep(_PAUSE)
        raise BootError(
            f"processes of {user.name}, who left, do not end: "
            f"`toolkit run -- ps -U {user.uid} -o pid,stat,args` shows them"
        )

    def _write(self, path: Path, text: str) -> bool:
        try:
            if path.read_text(encoding="utf-8") == text:
                return False
        except FileNotFoundError:
            pass
        write_atomically(path, text.encode(), mode=0o644)
        return True

    def _at(self, path: Path) -> Path:
        return self.root / path.relative_to("/")

    def _run(self, argv: list[str], *, allowed: frozenset[int] = frozenset({0})) -> CommandResult:
        result = self.runner.run(argv, timeout=_TIMEOUT)
        if result.returncode not in allowed:
            raise BootError(f"{argv[0]} failed: {(result.stderr or result.stdout).strip()[-300:]}")
        return result
