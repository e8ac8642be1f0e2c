"""Runs the same commands that a person would type."""

from __future__ import annotations

import collections
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.demo.phases import PhaseFailed, ShowDetail

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT_LINES = 15  # enough of a failing command's output to see why


@dataclass(frozen=True, slots=True)
class ToolkitCommand:
    """The `toolkit` program of this environment, run as a person runs it."""

    config: Path

    @property
    def program(self) -> Path:
        """Return the installed entry point beside the running interpreter."""
        return Path(sys.executable).parent / "toolkit"

    def run_and_show(self, argv: Sequence[str], show_detail: ShowDetail, *, remedy: str) -> None:
        """Run to the end, passing each line of progress to `show_detail`.

        Raises PhaseFailed with the end of the output when the command fails.
        """
        tail: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        with subprocess.Popen(
            [str(self.program), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None  # noqa: S101 - a pipe, see above
            for line in process.stdout:
                if text := line.strip():
                    tail.append(text)
                    show_detail(text)
        if process.returncode != 0:
            raise PhaseFailed(
                f"`toolkit {' '.join(argv)}` exited {process.returncode}",
                remedy=remedy,
                evidence="\n".join(tail),
            )

    def run_in_terminal(self, argv: Sequence[str]) -> int:
        """Run with the person's terminal and return the exit code."""
        return subprocess.run([str(self.program), *argv], check=False).returncode
