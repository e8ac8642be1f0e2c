"""The commands that set an instance up.

One that fails ends the set-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BootError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from slurmplugins.system.command import CommandResult, Runner

_MAX_COMMAND: Final = 200
_MOUNTPOINT_SECONDS: Final = 10


def run(
    runner: Runner,
    argv: Sequence[str],
    *,
    timeout: float,
    accepted: Collection[int] = (0,),
    shown: str = "",
    max_output: int = 400,
) -> CommandResult:
    """Run a command to its end and return its result.

    `shown` stands for the command in the error; without it, its words do. Raises BootError with the
    last `max_output` characters of its output, unless its exit code is accepted.
    """
    result = runner.run(argv, timeout=timeout)
    if result.returncode not in accepted:
        output = (result.stderr or result.stdout).strip()[-max_output:]
        raise BootError(f"{shown or ' '.join(argv)[:_MAX_COMMAND]} failed: {output}")
    return result


def is_mounted(runner: Runner, folder: str) -> bool:
    """Return whether a filesystem is mounted at the folder."""
    argv = ["/usr/bin/mountpoint", "-q", folder]
    return runner.run(argv, timeout=_MOUNTPOINT_SECONDS).returncode == 0
