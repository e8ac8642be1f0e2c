"""The record of bills: a file of JSON lines for each cluster, which only grows.

Each line is one of three entries. A `bill` says that a bill was read. A `day` says that a
day became reconciled or final, with what was billed for each instance. A `correction` is a
later change of one instance on a final day. A day's past is never written anew.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolkit.bill.amounts import parse_amount
from toolkit.bill.errors import BillError, BillRecordDamaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from decimal import Decimal

FOLDER_VARIABLE: Final = "TOOLKIT_BILLS"
_FOLDER: Final = Path("toolkit") / "bills"  # below the user's state folder


class DayStatus(StrEnum):
    """A state of the knowledge of a day's cost."""

    ESTIMATED = "estimated"
    RECONCILED = "reconciled"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class BillEntry:
    """A bill was read."""

    bill: str  # hash of its content
    files: tuple[str, ...]  # SHA-256 of each
    months: tuple[date, ...]  # first days of its billing periods
    at: int


@dataclass(frozen=True, slots=True)
class DayEntry:
    """A day became reconciled or final, or a reconciled day was billed anew."""

    day: date
    status: DayStatus
    estimated: Decimal
    billed: Mapping[str, Decimal]  # US dollars, by instance id
    bill: str
    at: int


@dataclass(frozen=True, slots=True)
class CorrectionEntry:
    """A later bill changed an instance's cost on a final day."""

    day: date
    instance: str
    old: Decimal
    new: Decimal
    difference: Decimal
    bill: str
    at: int


Entry = BillEntry | DayEntry | CorrectionEntry


def default_folder() -> Path:
    """Return $TOOLKIT_BILLS, or a folder in the user's state folder."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / _FOLDER


def record_path(folder: Path, cluster: str) -> Path:
    """Return the file of one cluster."""
    return folder / f"{cluster}.jsonl"


def read_entries(path: Path) -> tuple[Entry, ...]:
    """Return all entries, the oldest first; none without a file.

    Raises BillRecordDamaged.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise BillError(f"can't read {path}: {error.strerror}") from error
    whole, _, _ = content.rpartition(b"\n")  # a writer was killed in the last line
    return tuple(_parsed(path, number, line) for number, line in enumerate(whole.splitlines(), 1))


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open the record for appending, and keep other writers out."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BillError(f"can't write {path}: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def append(file: int, entries: Iterable[Entry]) -> None:
    """Add entries to an opened record; they are then on disk.

    A half line of a killed writer is cut off first. Raises BillError.
    """
    content = "".join(json.dumps(_json(entry)) + "\n" for entry in entries).encode()
    try:
        os.ftruncate(file, _whole_lines(file))
        while content:
            content = content[os.write(file, content) :]
        os.fsync(file)
    except OSError as error:
        raise BillError(f"can't write the record of bills: {error.strerror}") from error


def _whole_lines(file: int) -> int:
    """Return the size of the record's whole lines."""
    size = os.fstat(file).st_size
    tail = b""
    position = size
    while position and b"\n" not in tail:
        step = min(position, 4096)
        position -= step
        tail = os.pread(file, step, position) + tail
    return position + tail.rfind(b"\n") + 1 if size else 0


def _json(entry: Entry) -> dict[str, Any]:
    match entry:
        case BillEntry():
            months = [month.isoformat() for month in entry.months]
            return {
                "entry": "bill",
                "bill": entry.bill,
                "files": list(entry.files),
                "months": months,
                "at": entry.at,
            }
        case DayEntry():
            return {
                "entry": "day",
                "day": entry.day.isoformat(),
                "status": entry.status.value,
                "estimated": str(entry.estimated),
                "billed": {name: str(usd) for name, usd in sorted(entry.billed.items())},
                "bill": entry.bill,
                "at": entry.at,
            }
        case CorrectionEntry():
            return {
                "entry": "correction",
                "day": entry.day.isoformat(),
                "instance": entry.instance,
                "old": str(entry.old),
                "new": str(entry.new),
                "difference": str(entry.difference),
                "bill": entry.bill,
                "at": entry.at,
            }


def _parsed(path: Path, number: int, line: bytes) -> Entry:
    try:
        return _entry(json.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BillRecordDamaged(
            f"{path} line {number} is no entry: {type(error).__name__} {error}",
            next_step="bring the file back from a copy; the lines before it are whole",
        ) from error


def _entry(content: Mapping[str, Any]) -> Entry:
    match content["entry"]:
        case "bill":
            months = tuple(date.fromisoformat(month) for month in content["months"])
            return BillEntry(content["bill"], tuple(content["files"]), months, int(content["at"]))
        case "day":
            return DayEntry(
                day=date.fromisoformat(content["day"]),
                status=DayStatus(content["status"]),
                estimated=_usd(content["estimated"]),
                billed={name: _usd(text) for name, text in content["billed"].items()},
                bill=content["bill"],
                at=int(content["at"]),
            )
        case "correction":
            return CorrectionEntry(
                day=date.fromisoformat(content["day"]),
                instance=content["instance"],
                old=_usd(content["old"]),
                new=_usd(content["new"]),
                difference=_usd(content["difference"]),
                bill=content["bill"],
                at=int(content["at"]),
            )
        case other:
            raise ValueError(f"an unknown entry {other!r}")


def _usd(text: str) -> Decimal:
    amount = parse_amount(text)
    if amount is None:
        raise ValueError(f"{text!r} is no amount")
    return amount
