"""The users' ways into an instance: keys for sshd, names for slurm-login, and open sessions.

The head has them, or the login nodes where there are any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import BootError
from slurmplugins.node import setup_command
from slurmplugins.system.files import write_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from slurmplugins.node.users import User
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner

_TIMEOUT: Final = 120.0
_PASSES: Final = 20
_PAUSE: Final = 0.25
"""Between two looks for the processes of a user who left: ended ones wait for their parent."""
_NO_PROCESS: Final = 1
"""Exit code of pkill when nothing matches."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """The ways into one instance, with the parts that change them."""

    root: Path
    """The directory that holds the instance's files: `/`, or another one in tests."""
    runner: Runner
    clock: Clock

    def allow(self, users: Iterable[User]) -> bool:
        """Let these users, and nobody else, open sessions from now on.

        Who left is not let in. Returns whether anything changed. Raises OSError. Safe to repeat.
        """
        admitted = [user for user in users if not user.left]
        changed = self._write_keys({user.name: user.ssh_keys for user in admitted})
        names = "".join(f"{user.name}\n" for user in admitted)
        return write_text(self.root / paths.LOGINS.relative_to("/"), names) or changed

    def end(self, users: Iterable[User]) -> None:
        """End all processes of the users who left.

        No job may run on this instance. Raises BootError if some of them stay.
        """
        for user in users:
            if user.left:
                self._end_processes(user)

    def _write_keys(self, keys: dict[str, tuple[str, ...]]) -> bool:
        """Write a file for each user with keys; delete all others."""
        directory = self.root / paths.SSH_KEYS.relative_to("/")
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        wanted = {name: "".join(f"{key}\n" for key in lines) for name, lines in keys.items()}
        changed = False
        for path in sorted(directory.iterdir()):
            if not wanted.get(path.name):
                path.unlink()
                changed = True
        for name, text in wanted.items():
            if text:
                changed |= write_text(directory / name, text)
        return changed

    def _end_processes(self, user: User) -> None:
        for _ in range(_PASSES):
            # The kernel signals all of them under one lock: none escapes by forking (kill(2), -1).
            ids = ["--reuid", str(user.uid), "--regid", str(user.gid), "--clear-groups"]
            kill = ["/usr/bin/kill", "-KILL", "--", "-1"]
            self.runner.run(["/usr/bin/setpriv", *ids, *kill], timeout=_TIMEOUT)
            argv = ["/usr/bin/pkill", "--signal", "KILL", "--uid", str(user.uid)]
            result = setup_command.run(
                self.runner, argv, timeout=_TIMEOUT, accepted={0, _NO_PROCESS}, shown=argv[0],
                max_output=300,
            )  # fmt: skip
            if result.returncode == _NO_PROCESS:
                return
            self.clock.sleep(_PAUSE)
        raise BootError(
            f"processes of {user.name}, who left, do not end: "
            f"`toolkit run -- ps -U {user.uid} -o pid,stat,args` shows them"
        )
