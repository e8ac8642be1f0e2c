"""The `toolkit` commands of a run, each within what is left of its time."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# A deploy that is interrupted terminates its image builders first.
GRACE_SECONDS = 60.0
PROGRAM = "from toolkit.cli import main; main()"
PR_SET_PDEATHSIG = 1  # linux/prctl.h


class CommandFailed(Exception):  # noqa: N818  # the name states the fault
    """A command with another exit code than 0, or one that took too long."""


@dataclass(slots=True)
class Deadline:
    """A moment after which no command goes on."""

    at: float
    clock: Callable[[], float] = time.monotonic

    @property
    def left(self) -> float:
        """Return the seconds that are left; never below 0."""
        return max(0.0, self.at - self.clock())


def toolkit(config: Path, deadline: Deadline, *argv: str, show: bool = True) -> str:
    """Run a command and return its standard output.

    It has a session of its own, so ^C reaches this program alone, which ends the command.
    Raises CommandFailed.
    """
    command = [sys.executable, "-c", PROGRAM, *argv, "--config", str(config)]
    if not deadline.left:
        raise CommandFailed(f"no time is left for toolkit {argv[0]}")
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if show else subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=_end_with_parent,  # noqa: PLW1509  # this program has one thread
    ) as process:
        try:
            output, _ = process.communicate(timeout=deadline.left)
        except subprocess.TimeoutExpired:
            _end(process)
            raise CommandFailed(f"toolkit {argv[0]} was ended at the deadline") from None
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        raise CommandFailed(f"toolkit {argv[0]} exited {process.returncode}\n{output}")
    return output


def _end_with_parent() -> None:
    """Have the kernel interrupt this process when its parent is killed.

    A deploy that went on alone would make again what the clean-up deletes.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupt a command and all that it started; kill what stays."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        return
