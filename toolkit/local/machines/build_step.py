"""A step of a build: a command whose lines are progress; its last lines are kept."""

from __future__ import annotations

import collections
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolkit.local.machines import enter_machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_KEPT_LINES = 40


@dataclass(slots=True)
class BuildStep:
    """Runs the launcher with the plan at `plan`; ends with us, even after a kill -9."""

    plan: Path
    lines: collections.deque[str] = field(
        default_factory=lambda: collections.deque(maxlen=_KEPT_LINES)
    )

    @property
    def tail(self) -> str:
        """Return the last lines the command printed."""
        return "\n".join(self.lines)

    def run(self, on_line: Callable[[str], None]) -> int:
        """Run to the end and return the exit code.

        Calls `on_line` for each line.
        """
        argv = [sys.executable, "-I", "-S", enter_machine.__file__, str(self.plan)]
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
        ) as process:
            if process.stdout is None:  # never: we asked for a pipe
                return 1
            try:
                for raw in process.stdout:
                    line = raw.decode(errors="replace").rstrip()
                    self.lines.append(line)
                    on_line(line)
            except BaseException:
                process.kill()
                raise
            return process.wait()
