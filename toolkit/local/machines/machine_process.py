"""The process that becomes a machine, as its parent sees it.

It outlives whoever started it, on purpose: a machine does not end with the daemon. So it is a
bare process id, not a Popen, which would complain when it is forgotten.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.local.machines import enter_machine

if TYPE_CHECKING:
    from pathlib import Path

_TICK = 0.02


@dataclass(frozen=True, slots=True)
class Launcher:
    """A launcher we started and therefore have to reap."""

    pid: int

    @classmethod
    def spawn(cls, plan: Path, log: Path) -> Launcher:
        """Start enter_machine.py with the plan, in its own session.

        It writes to the log.
        """
        argv = [sys.executable, "-I", "-S", enter_machine.__file__, str(plan)]
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        files = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawn(sys.executable, argv, os.environ, file_actions=files, setsid=True)
        return cls(pid)

    def has_ended(self, *, within: float = 0.0) -> bool:
        """Return whether it has ended, waiting up to `within` seconds.

        Reaps it then.
        """
        deadline = time.monotonic() + within
        while True:
            try:
                if os.waitpid(self.pid, os.WNOHANG)[0] == self.pid:
                    return True
            except ChildProcessError:  # somebody else of this process has reaped it
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_TICK)
