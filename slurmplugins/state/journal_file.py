"""The journal's lines on disk: append, sync, read the new lines, compact.

The caller holds the journal's lock. All methods raise OSError. Compaction keeps the records that
still have a meaning.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Final

from slurmplugins.model import json_input
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from slurmplugins.state.journal_view import Record


_HEAD_BYTES: Final = 256
"""Bytes that identify a file: they hold its first line's times."""

COMPACTED: Final = "compacted"
"""The kind of a compacted file's first record."""

_PROCESS_KINDS: Final = frozenset({"claim", "release", "intent", "failed"})
"""Kinds without meaning after their process has ended and EC2's lists are up to date."""


class JournalFile:
    """The journal file, read incrementally."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._head = b""
        self._position = 0

    def size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def read(self) -> tuple[bool, list[Record]]:
        """Return the new records, and whether they are all records.

        They are all records at the first call, and if the file was replaced since the last one.
        """
        try:
            with self._path.open("rb") as file:
                head = file.read(_HEAD_BYTES)
                is_new = not (self._head and head.startswith(self._head))
                is_new = is_new or os.fstat(file.fileno()).st_size < self._position
                if is_new:
                    self._head, self._position = head, 0
                file.seek(self._position)
                text = file.read()
        except FileNotFoundError:
            self._head, self._position = b"", 0
            return True, []
        self._position += len(text)
        return is_new, _records(text.decode(errors="replace"))

    def append(self, record: Record) -> None:
        """Append a record, and sync it to disk before returning."""
        line = _line(record)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o640)
        try:
            # A killed process may have left half a line: this record needs its own line.
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            while line:  # a disk that fills up takes a part, and refuses only the rest
                line = line[os.write(descriptor, line) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rewrite(self, header: Record, records: Iterable[Record]) -> None:
        """Replace the file by a header and these records.

        The header must differ from that of every earlier file. It gets the records' `size`.
        """
        lines = b"".join(map(_line, filter(_writable, records)))
        write_atomically(self._path, _line({**header, "size": len(lines)}) + lines, mode=0o640)


def _line(record: Record) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _writable(record: Record) -> bool:
    """Return whether a record can be written.

    A readable record may be nested too deeply to be written.
    """
    try:
        json.dumps(record)
    except RecursionError:
        return False
    return True


def _records(text: str) -> list[Record]:
    records: list[Record] = []
    for line in text.split("\n"):
        try:
            record = json_input.loads(line)
        except ValueError:
            continue  # the last line of a process that was killed during a write
        if isinstance(record, dict):
            records.append(record)
    return records


def meaningful_records(
    records: Sequence[Record],
    recent: Callable[[Record], bool],
    still_listed: Callable[[Record], bool],
    is_live: Callable[[str], bool],
) -> list[Record]:
    """Return the records that still change the journal's view.

    `recent`: EC2's lists may not show yet the launch that the record is about.
    `still_listed`: EC2 may still list the record's instances. `is_live`: the process is live.
    """
    terminated_ids: set[str] = set()
    for record in records:
        if record.get("kind") == "ended":
            with contextlib.suppress(KeyError, TypeError):  # a damaged line
                terminated_ids.update(record["ids"])
    nodes_with_instance: set[str] = set()
    """Nodes with an instance, up to this record, whose termination is not decided."""

    def is_meaningful(record: Record) -> bool:
        kind = record.get("kind")
        if kind in _PROCESS_KINDS:
            return recent(record) or is_live(str(record.get("run")))
        if kind == COMPACTED or not still_listed(record):
            return False
        if kind == "launched":
            live_nodes = [
                node
                for node, instance_id, *_ in record["machines"]
                if instance_id not in terminated_ids
            ]
            nodes_with_instance.update(live_nodes)
            return bool(live_nodes) or recent(record)
        return kind != "let-go" or not nodes_with_instance.isdisjoint(record["nodes"])

    meaningful = []
    for record in records:
        try:
            keep = is_meaningful(record)
        except (KeyError, TypeError, ValueError, AttributeError):  # damaged, or of a newer version
            keep = still_listed(record)
        meaningful += [record] if keep else []
    return meaningful
