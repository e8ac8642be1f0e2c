"""Read and write the job's log.

Every attempt of the job appends to the same file, and first writes a line that names the attempt.
"""

import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from toolkit.training.io.durable_files import ABSENT, read_twice

LOG_BYTES = 256 * 1024
"""How many bytes of the log's end are read: there every rank says why the attempt ended."""

_BEGINS = "[toolkit] job {job}, restart {restart},"
"""The first line that preflight.sh writes. Earlier attempts stand before it in the log."""


def say(message: str) -> None:
    """Write a line to the job's log.

    No rule takes such a line for a cause (failure_cause.tail). A log that can't be written is
    ignored.
    """
    line = " ".join(message.splitlines())
    with suppress(OSError):  # a full log is no reason to stop
        sys.stdout.write(f"[toolkit] {line}\n")
        sys.stdout.flush()


def end(environment: Mapping[str, str], otherwise: str = "") -> str:
    """Return the end of this job's log, "" if none is readable.

    `otherwise` is a path to try when the environment and this process name none.
    """
    try:
        return read(environment, otherwise)
    except OSError:
        return ""


def read(environment: Mapping[str, str], otherwise: str = "") -> str:
    """Return the end of this job's log, "" without a log.

    Like `end`, but raises OSError for a log that can't be read now and may be readable later.
    """
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
    """Return the text that one attempt wrote.

    "" when the log's end does not reach back to the attempt's first line.
    """
    begins = _BEGINS.format(job=job_id, restart=restart_count)
    own = text.rpartition(begins)[2] if begins in text else ""
    return own.partition("\n[toolkit] job ")[0]


def since(text: str, job_id: str, restart_count: int) -> str:
    """Return the text written since an attempt began.

    All of `text` when the attempt's first line is cut off.
    """
    begins = _BEGINS.format(job=job_id, restart=restart_count)
    return text[max(0, text.rfind(begins)) :]


def _own() -> str:
    """Return the file that this process's standard error goes to.

    It is the log of the batch script and of its steps. Returns "" when it is no regular file.
    Raises OSError when the file can't be looked at.
    """
    try:
        path = Path("/proc/self/fd/2").readlink()
    except OSError:
        return ""
    try:
        return str(path) if stat.S_ISREG(path.stat().st_mode) else ""
    except ABSENT:
        return ""
