"""The output of commands: phases with progress, tables, JSON.

Results go to standard output, progress to standard error. On a terminal a phase is a
live line. Elsewhere it is one plain line when it ends, with a line of progress every 30
seconds.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

# A log without news for longer than this looks hung.
PROGRESS_SECONDS = 30.0


class Phase(Protocol):
    """A running step of a longer operation."""

    def update(self, detail: str, *, done: int = 0, total: int = 0) -> None:
        """Show the current activity. It is cheap: call it for any news."""

    def result(self, text: str) -> None:
        """Set the result for the phase's last line."""


class Reporter(Protocol):
    """A receiver of progress."""

    def phase(self, title: str) -> AbstractContextManager[Phase]:
        """Report one step; it succeeds unless the block raises."""

    def line(self, text: str) -> None:
        """Print a line between phases."""


class _TimedPhase:
    def __init__(self, title: str, clock: Callable[[], float]) -> None:
        self.title = title
        self.outcome = ""
        self._clock = clock
        self._started_at = clock()

    @property
    def seconds(self) -> float:
        return self._clock() - self._started_at

    def result(self, text: str) -> None:
        self.outcome = text

    def last_line(self, mark: str) -> str:
        outcome = f": {self.outcome}" if self.outcome else ""
        return f"{mark} {self.title}{outcome} ({self.seconds:.0f} s)"


class _PlainPhase(_TimedPhase):
    def __init__(
        self, title: str, clock: Callable[[], float], write: Callable[[str], None]
    ) -> None:
        super().__init__(title, clock)
        self._write = write
        self._last_written = clock()

    def update(self, detail: str, *, done: int = 0, total: int = 0) -> None:
        if self._clock() - self._last_written >= PROGRESS_SECONDS:
            self._last_written = self._clock()
            self._write(f"     {self.title}: {_progress(detail, done, total)}")


class PlainReporter:
    """A reporter that prints lines, for logs and pipes."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._clock = clock

    def line(self, text: str) -> None:
        # Looked up late: tests and click swap sys.stderr.
        print(text, file=self._stream or sys.stderr, flush=True)

    @contextmanager
    def phase(self, title: str) -> Iterator[Phase]:
        phase = _PlainPhase(title, self._clock, self.line)
        try:
            yield phase
        except BaseException:
            self.line(phase.last_line("FAIL"))
            raise
        self.line(phase.last_line("ok  "))


class _LivePhase(_TimedPhase):
    def __init__(self, title: str, clock: Callable[[], float], show: Callable[[str], None]) -> None:
        super().__init__(title, clock)
        self._show = show

    def update(self, detail: str, *, done: int = 0, total: int = 0) -> None:
        self._show(f"{self.title}  {_progress(detail, done, total)}")


class LiveReporter:
    """A reporter with a spinner on a terminal; a line replaces it when the phase ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._clock = clock

    def line(self, text: str) -> None:
        self._console.print(text, markup=False)

    @contextmanager
    def phase(self, title: str) -> Iterator[Phase]:
        from rich.markup import escape
        from rich.text import Text

        with self._console.status(escape(title)) as status:
            phase = _LivePhase(title, self._clock, lambda text: status.update(Text(text)))
            try:
                yield phase
            except BaseException:
                self._console.print(Text(phase.last_line("✗"), style="red"))
                raise
            self._console.print(Text(phase.last_line("✓"), style="green"))


def counted(number: int, noun: str) -> str:
    """Return `1 node`, or `2 nodes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def reporter() -> Reporter:
    """Return the reporter that suits standard error."""
    return LiveReporter() if sys.stderr.isatty() else PlainReporter()


def _progress(detail: str, done: int, total: int) -> str:
    return f"[{done}/{total}] {detail}" if total else detail


def print_json(value: object) -> None:
    """Print a value as JSON.

    Dataclasses become objects, times ISO 8601, decimals text.
    """
    sys.stdout.write(json.dumps(value, indent=2, default=_jsonable) + "\n")


def _jsonable(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return columns of text, each as wide as necessary, without trailing blanks."""
    texts = [list(headers), *([_cell(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(headers))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    )


def plain(text: str) -> str:
    """Return outside text with unprintable characters replaced.

    It can't control the terminal.
    """
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def _cell(value: object) -> str:
    return plain(str(value).replace("\n", " "))
