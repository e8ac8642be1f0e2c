"""The job's log: every attempt appends to it, and says first which one it is."""

import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from toolkit.training.io.durable_files import ABSENT, read_twice

LOG_BYTES = 256 * 1024
"""Of an attempt's log, its end: what ended it is said there, by every rank."""

_BEGINS = "[toolkit] job {job}, restart {restart},"
"""What preflight.sh says first: the log has earlier attempts before it."""


def say(message: str) -> None:
    """A line in it, which no rule takes for a cause (failure_cause.tail)."""
    line = " ".join(message.splitlines())
    with suppress(OSError):  # a log that is full is no reason to stop
        sys.stdout.write(f"[toolkit] {line}\n")
        sys.stdout.flush()


def end(environment: Mapping[str, str], otherwise: str = "") -> str:
    """The end of this job's log; "" if none can be read. `otherwise`: where it may be as well."""
    try:
        return read(environment, otherwise)
    except OSError:
        return ""


def read(environment: Mapping[str, str], otherwise: str = "") -> str:
    """As `end`. OSError where a log can't be read that may be read later."""
    path = environment.get("TOOLKIT_LOG") or _own() or otherwise
    try:
        return read_twice(Path(path), _end)
    except (*ABSENT, IsADirectoryError, PermissionError):
        return ""


def _end(path: Path) -> str:
    with path.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - LOG_BYTES))
        return stream.read().decode(errors="replace")


def of(text: str, job_id: str, restart_count: int) -> str:
    """What one attempt wrote, if the log has its beginning; "" otherwise."""
    begins = _BEGINS.format(job=job_id, restart=restart_count)
    own = text.rpartition(begins)[2] if begins in text else ""
    return own.partition("\n[toolkit] job ")[0]


def since(text: str, job_id: str, restart_count: int) -> str:
    """What was written since an attempt began; all of it where its beginning is cut off."""
    begins = _BEGINS.format(job=job_id, restart=restart_count)
    return text[max(0, text.rfind(begins)) :]


def _own() -> str:
    """The file that the batch script's errors go to, and its steps' with them; "" where that is
    none. OSError where it can't be looked at.
    """
    try:
        path = Path("/proc/self/fd/2").readlink()
    except OSError:
        return ""
    try:
        return str(path) if stat.S_ISREG(path.stat().st_mode) else ""
    except ABSENT:
        return ""
