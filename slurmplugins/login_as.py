"""Open a session as one of the cluster's users: `slurm-login USER [COMMAND ...]`, as root.

It refuses everybody whom cluster.yaml does not name: root, the system's own accounts, and users
who left. Behind `toolkit login --as`, a person gives the name, so it is checked here.
"""

from __future__ import annotations

import os
import pwd
import sys
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.system import imds_access

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurmplugins.system.imds_access import Service

RUNUSER: Final = "/usr/sbin/runuser"
ENV: Final = "/usr/bin/env"


def session_argv(words: Sequence[str], logins: Path, *, on_terminal: bool) -> list[str]:
    """Return the argv that opens the session.

    `--pty` gives it a terminal of its own: it can't type into the caller's. Raises SystemExit
    for a name that is not in the list.
    """
    if not words:
        raise SystemExit("usage: slurm-login USER [COMMAND ...]")
    name, command = words[0], list(words[1:])
    try:
        names = logins.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        names = []
    if not name or name not in names:
        raise SystemExit(f"slurm-login: {name!r} is none of the cluster's users, or has left")
    pty = ["--pty"] if on_terminal else []
    if not command:
        return [RUNUSER, *pty, "--login", name]
    home = f"--chdir={os.path.expanduser(f'~{name}')}"  # noqa: PTH111  # pathlib raises for no home
    return [RUNUSER, *pty, "--user", name, "--", ENV, home, *command]


def check_metadata(
    uid: int, refused: Callable[[Service, int], bool] = imds_access.is_refused
) -> None:
    """Raise SystemExit when this user could reach the instance metadata service."""
    if all(refused(service, uid) for service in imds_access.services(paths.PROC)):
        return
    raise SystemExit(
        "slurm-login: users could take this instance's role, so there are no sessions:"
        " systemctl status slurm-imds-access.service"
    )


def main() -> None:
    argv = session_argv(sys.argv[1:], paths.LOGINS, on_terminal=sys.stdin.isatty())
    check_metadata(pwd.getpwnam(sys.argv[1]).pw_uid)
    os.execv(argv[0], argv)  # noqa: S606 - argv, no shell


if __name__ == "__main__":
    main()
