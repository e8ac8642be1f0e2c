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

_FIRST_LINE = "[toolkit] job {job}, restart {restart},"
"""The first line that preflight.sh writes. Earlier attempts stand before it in the log."""


def log_line(message: str) -> None:
    """Write a line to the job's log.

    No rule takes such a line for a cause (failure_cause.tail). A log that can't be written is
    ignored.
    """
    line = " ".join(message.splitlines())
    with suppress(OSError):  # a full log is no reason to stop
        sys.stdout.write(f"[toolkit] {line}\n")
        sys.stdout.flush()


def tail_or_empty(environment: Mapping[str, str], fallback_path: str = "") -> str:
    """Return the end of this job's log, "" if none is readable.

    `fallback_path` is tried when the environment and this process name none.
    """
    try:
        return read_tail(environment, fallback_path)
    except OSError:
        return ""


def read_tail(environment: Mapping[str, str], fallback_path: str = "") -> str:
    """Return the end of this job's log, "" without a log.

    Like `tail_or_empty`, but raises OSError for a log that may be readable later.
    """
    path = environment.get("TOOLKIT_LOG") or _stderr_file() or fallback_path
    try:
        return read_twice(Path(path), _last_bytes)
    except (*ABSENT, IsADirectoryError, PermissionError):
        return ""


def _last_bytes(path: Path) -> str:
    with path.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - LOG_BYTES))
        return stream.read().decode(errors="replace")


def attempt_text(text: str, job_id: str, restart_count: int) -> str:
    """Return the text that one attempt wrote.

    "" when the log's end does not reach back to the attempt's first line.
    """
    first_line = _FIRST_LINE.format(job=job_id, restart=restart_count)
    later_text = text.rpartition(first_line)[2] if first_line in text else ""
    return later_text.partition("\n[toolkit] job ")[0]


def text_since_attempt(text: str, job_id: str, restart_count: int) -> str:
    """Return the text written since an attempt began.

    All of `text` when the attempt's first line is cut off.
    """
    first_line = _FIRST_LINE.format(job=job_id, restart=restart_count)
    return text[max(0, text.rfind(first_line)) :]


def _stderr_file() -> str:
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
