"""Limits on what one user may take of a login node: a slice of systemd for each user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import BootError
from slurmplugins.model import json_input
from slurmplugins.node import setup_command
from slurmplugins.node.root_file import RootFile
from slurmplugins.system.files import write_text

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.system.command import Runner

TIMEOUT: Final = 60.0
MARGIN: Final = 5
"""Percent of the memory between slowing a user's processes down and ending one of them."""


def user_slice(share: float, cpus: int) -> str:
    """Return the drop-in that limits each user to a share.

    Above MemoryHigh her processes are slowed down, and above MemoryMax the kernel ends one of them
    (systemd.resource-control(5)). CPUQuota counts in CPUs: 100% is one.
    """
    percent = round(share * 100)
    return (
        "# Written by slurm-login-agent.\n"
        "[Slice]\n"
        f"CPUQuota={max(round(share * cpus * 100), 1)}%\n"
        f"MemoryHigh={percent}%\n"
        f"MemoryMax={min(percent + MARGIN, 100)}%\n"
    )


class UserLimits:
    """The applied limits, which change with the head's file."""

    def __init__(self, path: Path, root: Path, runner: Runner, cpus: int) -> None:
        """Keep the parts.

        `root` holds the instance's files: `/`, or another folder in tests.
        """
        self._file = RootFile(path)
        self._root = root
        self._runner = runner
        self._cpus = cpus

    def follow(self) -> None:
        """Apply the limits if the file has changed, also to open sessions.

        An absent file means none. Raises BootError or OSError.
        """
        self._file.follow(self._apply)

    def _apply(self, text: str) -> None:
        wanted = user_slice(_share(text), self._cpus)
        drop_in = self._root / paths.USER_SLICE_DROP_IN.relative_to("/")
        drop_in.parent.mkdir(parents=True, exist_ok=True)
        write_text(drop_in, wanted)
        reload = ["/usr/bin/systemctl", "daemon-reload"]
        name = "systemctl daemon-reload"
        setup_command.run(self._runner, reload, timeout=TIMEOUT, shown=name, max_output=200)


def _share(text: str) -> float:
    try:
        share = json_input.loads(text)["max_user_share"]
    except (ValueError, KeyError, TypeError) as error:
        raise BootError(f"the limits of login nodes can't be read: {error}") from error
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise BootError(f"the limits of login nodes have an invalid share: {share!r}")
    return float(share)
