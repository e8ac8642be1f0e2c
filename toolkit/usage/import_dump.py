"""`toolkit usage import`: a dump of sacct, part by part into the store.

Each part is whole in the store before the next one begins. An import that was killed goes on
behind its last part. A file that was read before is read no second time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolkit.usage import database, dump_columns, dump_file
from toolkit.usage.dump_text import ROWS_A_BLOCK, BadLine, SacctText
from toolkit.usage.merge import merged
from toolkit.usage.store import Import

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from toolkit.usage.dump_text import Block, DumpFormat, Row
    from toolkit.usage.store import Manifest, Store

ROWS_A_PART = 1_000_000


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of an import."""

    delimiter: str | None = None  # None: as the header tells
    timezone: str = "UTC"  # of ISO times
    rows_a_part: int = ROWS_A_PART

    @property
    def rows_a_block(self) -> int:
        """Return the most rows that are read at once."""
        return min(self.rows_a_part, ROWS_A_BLOCK)


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The outcome of an import."""

    record: Import
    was_known: bool = False  # the same file was read before
    days: int = 0  # changed
    bad_lines: tuple[BadLine, ...] = ()


@dataclass(frozen=True, slots=True)
class _OpenDump:
    """A dump that is being read, and the folder for what is temporary."""

    rows: Iterator[Block | Row | BadLine]
    form: DumpFormat
    options: ImportOptions
    temporary: Path


def import_dump(store: Store, path: Path, options: ImportOptions) -> ImportResult:
    """Read a dump into the store.

    It may be killed at any time, and repeated. Raises UsageStoreError.
    """
    sha256 = dump_file.digest(path)
    with dump_file.opened(path) as file:
        form = dump_file.header_of(file, options.delimiter)
        source = SacctText(path.name, sha256, form, dump_file.chunks(file), 2)
        return import_lines(store, source, options)


def import_lines(store: Store, source: SacctText, options: ImportOptions) -> ImportResult:
    """Read sacct's lines into the store.

    It may be killed at any time, and repeated. A source that was read before is read no second
    time. Raises UsageStoreError.
    """
    with store.changing() as temporary:
        record = _record(store.manifest(), source)
        if record.complete:
            return ImportResult(record, was_known=True)
        rows = dump_file.rows_after(source, record.last_line, options.rows_a_block)
        dump = _OpenDump(rows, source.form, options, temporary)
        days: set[str] = set()
        is_complete = False
        while not is_complete:
            before = store.manifest()
            record, manifest = _part(store, dump, record)
            days |= {day for day in manifest.days if manifest.days[day] != before.days.get(day)}
            store.commit(_with_import(manifest, record))
            is_complete = record.complete
    return ImportResult(record, days=len(days), bad_lines=tuple(store.bad_lines(record.number)))


def _record(manifest: Manifest, source: SacctText) -> Import:
    """Return the record that an import of the source goes on with."""
    for record in manifest.imports:
        if record.sha256 == source.sha256:
            return record
    return Import(len(manifest.imports) + 1, source.name, source.sha256, 0, False, 0, 0, 0)


def checked_dump(path: Path, options: ImportOptions, temporary: Path) -> ImportResult:
    """Read a dump and keep nothing of it: what `--dry-run` shows."""
    with dump_file.opened(path) as file:
        form = dump_file.header_of(file, options.delimiter)
        record = Import(0, path.name, "", 0, False, 0, 0, 0)
        source = SacctText(path.name, "", form, dump_file.chunks(file), 2)
        rows = dump_file.rows_after(source, 0, options.rows_a_block)
        dump = _OpenDump(rows, form, options, temporary)
        bad_lines: list[BadLine] = []
        while not record.complete:
            with database.opened(temporary) as opened:
                record, part_lines = _read_part(opened, dump, record)
            bad_lines += part_lines
    return ImportResult(record, bad_lines=tuple(bad_lines))


def _part(store: Store, dump: _OpenDump, record: Import) -> tuple[Import, Manifest]:
    """Read the next part, and write its days."""
    with database.opened(dump.temporary) as opened:
        read, bad_lines = _read_part(opened, dump, record)
        store.keep_bad_lines(record.number, bad_lines)
        name = f"{record.number}-{read.last_line}"
        return read, merged(opened, store, store.manifest(), dump.temporary, name)


def _read_part(
    opened: database.Database, dump: _OpenDump, record: Import
) -> tuple[Import, list[BadLine]]:
    """Make the table `read_attempts` of the next rows.

    Returns the record and the bad lines.
    """
    spool, limit = dump.temporary / "spool", dump.options.rows_a_part
    part = dump_file.spool_rows(dump.rows, dump.form, spool, limit)
    steps, no_attempts = dump_columns.read_spool(
        opened, part, dump.form, record.number, dump.options.timezone
    )
    bad_lines = [*part.bad_lines, *(BadLine(*item) for item in no_attempts)]
    read = replace(
        record,
        last_line=max(record.last_line, part.last_line),
        complete=part.is_last,
        attempts=record.attempts + part.rows - steps - len(no_attempts),
        steps=record.steps + steps,
        bad_lines=record.bad_lines + len(bad_lines),
    )
    return read, bad_lines


def _with_import(manifest: Manifest, record: Import) -> Manifest:
    """Return the manifest with the record, in place of its earlier one."""
    others = [item for item in manifest.imports if item.number != record.number]
    return replace(manifest, imports=(*others, record))
