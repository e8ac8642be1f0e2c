"""The runtime's own log: one JSON object a line. Slurm throws ResumeProgram's output away."""

from __future__ import annotations

import fcntl
import os
import sys
from typing import TYPE_CHECKING, Final

from slurmplugins import log_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.clock import Clock

_SECRET_WORDS: Final = ("secret", "password", "token", "credential", "slurm_key")
MOST_BYTES: Final = 16 * 1024 * 1024
"""Of one log file; the one before it is kept too."""


class Log:
    """Writes events with the fields bound so far. `bind` returns a new log; nothing is shared."""

    def __init__(
        self, write: Callable[[str], None], clock: Clock, fields: dict[str, object] | None = None
    ) -> None:
        self._write = write
        self._clock = clock
        self._fields = fields or {}

    def bind(self, **fields: object) -> Log:
        return Log(self._write, self._clock, {**self._fields, **fields})

    def info(self, event: str, **fields: object) -> None:
        self._emit("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._emit("warning", event, fields)

    def problem(self, event: str, **fields: object) -> None:
        self._emit("error", event, fields)

    def _emit(self, level: str, event: str, fields: dict[str, object]) -> None:
        record = {"at": round(self._clock.now(), 3), "level": level, "event": event}
        for key, value in {**self._fields, **fields}.items():
            record[key] = "[redacted]" if _secret(key) else value
        for line in log_lines.of(record):
            self._write(line + "\n")


def to_file(path: Path, *, limit: int = MOST_BYTES) -> Callable[[str], None]:
    """Append whole lines to path; a full disk or a missing right loses the line, not the work.

    At `limit` bytes the file becomes PATH.1, in place of the one before it: two files at most.
    """

    def write(line: str) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                os.write(descriptor, line.encode())
                if os.fstat(descriptor).st_size >= limit:
                    _turn_over(path, descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            to_stderr(line)

    return write


def _turn_over(path: Path, descriptor: int) -> None:
    """Only the process that holds the lock on the very file that is at `path` moves it."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    if os.fstat(descriptor).st_ino == path.stat().st_ino:
        path.replace(path.with_name(f"{path.name}.1"))


def to_stderr(line: str) -> None:
    """For programs that systemd runs: the journal keeps standard error."""
    sys.stderr.write(line)
    sys.stderr.flush()


def _secret(key: str) -> bool:
    return any(word in key.lower() for word in _SECRET_WORDS)
