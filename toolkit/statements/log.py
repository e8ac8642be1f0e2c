"""The log of periods: a file of JSON lines beside the store, which only grows.

Each line has the SHA-256 of the line before it. So a line that was changed or taken out is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from toolkit.statements.errors import PeriodLogDamaged, StatementsError

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "periods.jsonl"
_FIRST: Final = ""


class Change(StrEnum):
    """A change that a person makes to a period."""

    REVIEW = "review"
    APPROVE = "approve"
    CLOSE = "close"
    REOPEN = "reopen"
    FINALIZE = "finalize"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A change: who made it, when and why."""

    change: Change
    period: str  # such as 2026-11
    at: int
    who: str
    reason: str = ""
    doubts: tuple[tuple[str, str], ...] = ()
    """The id and the text of each row that was approved."""
    revision: int = 0
    digest: str = ""
    """Of the closed period's files."""


def read(path: Path) -> tuple[LogEntry, ...]:
    """Return all entries, the oldest first; none without a file.

    Raises PeriodLogDamaged. The half line of a killed writer is no entry.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StatementsError(f"can't read {path}: {error.strerror}") from error
    whole, _, _ = content.rpartition(b"\n")
    entries, before = [], _FIRST
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            data = json.loads(line)
            chained = data.pop("before") == before
            entry = _entry(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _damaged(path, number, f"is no entry: {error}") from error
        if not chained:
            raise _damaged(path, number, "does not follow the line before it")
        entries.append(entry)
        before = _hash(line)
    return tuple(entries)


def append(path: Path, entry: LogEntry) -> None:
    """Add an entry; it is then on disk.

    The caller holds the store's lock. The half line of a killed writer is cut off first.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            content = os.pread(file, os.fstat(file).st_size, 0)
            whole = content[: content.rfind(b"\n") + 1]
            os.ftruncate(file, len(whole))
            lines = whole.splitlines()
            values = {**asdict(entry), "before": _hash(lines[-1]) if lines else _FIRST}
            line = json.dumps(values).encode() + b"\n"
            while line:
                line = line[os.write(file, line) :]
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise StatementsError(f"can't write {path}: {error.strerror}") from error


def _entry(data: dict[str, Any]) -> LogEntry:
    doubts = tuple((str(name), str(text)) for name, text in data["doubts"])
    return LogEntry(**{**data, "change": Change(data["change"]), "doubts": doubts})


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _damaged(path: Path, number: int, text: str) -> PeriodLogDamaged:
    return PeriodLogDamaged(
        f"{path} line {number} {text}",
        next_step="bring the file back from a copy; the lines before it are whole",
    )
