"""The log: one JSON object a line, in a file, since Slurm throws ResumeProgram's output away.

Lines have a limited length, and an event never loses a node or a job. The long lists and hostlists
of an event are spread over several lines, numbered by `part`. Short fields are repeated on each
line, so that every line can be understood alone. Free text that is too long is cut.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from typing import TYPE_CHECKING, Final, TypeAlias

from slurmplugins.errors import BadName
from slurmplugins.model import hostlist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from slurmplugins.system.clock import Clock
    from slurmplugins.system.log_events import LogEvent


SECRET_WORDS: Final = ("secret", "password", "token", "credential", "slurm_key")
MAX_BYTES: Final = 16 * 1024 * 1024
"""Size at which a new log file begins; the previous one is kept too."""

MAX_LINE_BYTES: Final = 4000
"""Most bytes of a line. One append writes a whole line, so lines of two processes never mix."""

_SHORT_LENGTH: Final = 800
"""Characters of a value that may be repeated on every line of an event."""

_TEXT_LENGTH: Final = 400
"""Characters kept of free text that is too long."""

_PART_FIELD_LENGTH: Final = 20
"""Characters that the field `part` takes."""

Record: TypeAlias = "Mapping[str, object]"


class Log:
    """A log that adds its bound fields to each event. `bind` returns a new, independent log."""

    def __init__(
        self, write: Callable[[str], None], clock: Clock, fields: dict[str, object] | None = None
    ) -> None:
        self._write = write
        self._clock = clock
        self._fields = fields or {}

    def bind(self, **fields: object) -> Log:
        return Log(self._write, self._clock, {**self._fields, **fields})

    def info(self, event: LogEvent, **fields: object) -> None:
        self._emit("info", event, fields)

    def warning(self, event: LogEvent, **fields: object) -> None:
        self._emit("warning", event, fields)

    def failure(self, event: LogEvent, **fields: object) -> None:
        self._emit("error", event, fields)

    def _emit(self, level: str, event: LogEvent, fields: dict[str, object]) -> None:
        record = {"at": round(self._clock.now(), 3), "level": level, "event": event}
        for key, value in {**self._fields, **fields}.items():
            record[key] = "[redacted]" if _secret(key) else value
        for line in lines_of(record):
            self._write(line + "\n")


def to_file(path: Path, *, limit: int = MAX_BYTES) -> Callable[[str], None]:
    """Return a function that appends whole lines to `path`.

    On a full disk or a missing permission the line goes to standard error, and the work goes on.
    At `limit` bytes the file is renamed to PATH.1 and replaces the previous one: two files at most.
    """

    def write(line: str) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                os.write(descriptor, line.encode())
                if os.fstat(descriptor).st_size >= limit:
                    _rotate(path, descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            to_stderr(line)

    return write


def _rotate(path: Path, descriptor: int) -> None:
    """Rename the full log file, unless another process did.

    Only a process that holds the lock on the file now at `path` may rename it.
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    if os.fstat(descriptor).st_ino == path.stat().st_ino:
        path.replace(path.with_name(f"{path.name}.1"))


def to_stderr(line: str) -> None:
    """Write the line to standard error, which systemd's journal keeps."""
    sys.stderr.write(line)
    sys.stderr.flush()


def _secret(key: str) -> bool:
    return any(word in key.lower() for word in SECRET_WORDS)


def lines_of(record: Record) -> Iterator[str]:
    """Yield the lines of an event, without newlines."""
    line = _json(record)
    if len(line) <= MAX_LINE_BYTES:
        yield line
        return
    parts = list(_parts(_with_texts_cut(record)))
    for number, part in enumerate(parts, 1):
        yield _json({**part, "part": number} if len(parts) > 1 else part)


def _parts(record: Record) -> Iterator[Record]:
    """Yield records that fit in a line.

    Each has its share of the long fields, and all short fields.
    """
    if len(_json(record)) <= MAX_LINE_BYTES - _PART_FIELD_LENGTH:
        yield record
        return
    halves = {key: pair for key, value in record.items() if (pair := _halves(value))}
    if not halves:
        yield _with_texts_cut(record)
        return
    for side in (0, 1):
        yield from _parts({**record, **{key: pair[side] for key, pair in halves.items()}})


def _halves(value: object) -> tuple[object, object] | None:
    """Return both halves of a long list or hostlist, else None."""
    if isinstance(value, list | tuple) and len(value) > 1 and len(_json(value)) > _SHORT_LENGTH:
        middle = len(value) // 2
        return value[:middle], value[middle:]
    if isinstance(value, str) and len(value) > _SHORT_LENGTH:
        try:
            nodes = hostlist.expand(value)
        except BadName:
            return None
        middle = len(nodes) // 2
        return hostlist.compress(nodes[:middle]), hostlist.compress(nodes[middle:])
    return None


def _with_texts_cut(record: Record) -> Record:
    """Return the record with every long value cut that can't be halved."""
    return {
        key: value
        if len(_json(value)) <= _SHORT_LENGTH or _halves(value)
        else str(value)[:_TEXT_LENGTH]
        for key, value in record.items()
    }


def _json(value: object) -> str:
    return json.dumps(value, default=str, separators=(",", ":"))
