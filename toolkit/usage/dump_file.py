"""A dump of sacct on disk, plain or compressed, and the spool that DuckDB reads.

The spool holds whole rows alone. So DuckDB's reader meets no row that it would have to judge.
"""

from __future__ import annotations

import gzip
import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.usage.dump_text import (
    BYTES_A_BLOCK,
    SPOOL_DELIMITER,
    BadLine,
    Block,
    blocks,
    dump_format,
    spool_text,
)
from toolkit.usage.errors import DumpUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from toolkit.usage.dump_text import DumpFormat, Row, SacctText

_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20
_EDGES = (SPOOL_DELIMITER.encode(), b"\n")
"""What is between the fields of the spool."""


@dataclass(frozen=True, slots=True)
class Spooled:
    """A part of a dump in the spool."""

    path: Path
    rows: int
    last_line: int  # of the file; 0: there was none
    is_last: bool  # nothing of the dump is left
    bad_lines: tuple[BadLine, ...]
    shifts: tuple[tuple[int, int], ...]
    """From which row of the spool on, from 0, lines are numbered by how much more than rows."""
    has_outer_blanks: bool  # a field may begin or end with a blank


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes.

    Raises DumpUnreadable.
    """
    sha = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                sha.update(block)
    except OSError as error:
        raise DumpUnreadable(f"can't read {path}: {error.strerror}") from error
    return sha.hexdigest()


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a dump, plain or compressed.

    Raises DumpUnreadable, also for a compressed file that ends early.
    """
    try:
        with path.open("rb") as file:
            if file.read(2) != _GZIP:
                file.seek(0)
                yield file
                return
        with gzip.open(path, "rb") as unpacked:
            yield unpacked  # type: ignore[misc]  # typeshed: GzipFile is no BinaryIO
    except (OSError, EOFError) as error:
        raise DumpUnreadable(f"can't read {path}: {error}") from error


def header_of(file: BinaryIO, delimiter: str | None) -> DumpFormat:
    """Return the format of an open dump, whose first line it takes.

    Raises DumpUnreadable.
    """
    return dump_format(file.readline(1 << 16).decode(errors="replace"), delimiter)


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file's bytes, whole lines at once."""
    while chunk := file.read(BYTES_A_BLOCK):
        yield chunk if chunk.endswith(b"\n") else chunk + file.readline()


def spool_rows(
    items: Iterator[Block | Row | BadLine], form: DumpFormat, path: Path, limit: int
) -> Spooled:
    """Write the next rows to the spool, until the limit is reached."""
    spool = _Spool(path)
    count = 0
    with path.open("wb") as file:
        for item in items:
            if isinstance(item, BadLine):
                spool.bad_lines.append(item)
                spool.last_line = item.line
                count += 1
            else:
                block = item if isinstance(item, Block) else _block(item, form)
                spool.add(block)
                file.write(block.text)
                count += block.rows
            if count >= limit:
                return spool.result(is_last=False)
    return spool.result(is_last=True)


def _block(row: Row, form: DumpFormat) -> Block:
    return Block(row.line, 1, f"{spool_text(row.text, form)}\n".encode())


class _Spool:
    """A spool that is being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.bad_lines: list[BadLine] = []
        self.last_line = 0
        self._rows = 0
        self._shifts: list[tuple[int, int]] = []
        self._has_outer_blanks = False

    def add(self, block: Block) -> None:
        """Keep the facts of a block that is written."""
        self._has_outer_blanks = self._has_outer_blanks or _has_outer_blanks(block.text)
        shift = block.line - self._rows
        if not self._shifts or self._shifts[-1][1] != shift:
            self._shifts.append((self._rows, shift))
        self._rows += block.rows
        self.last_line = block.line + block.rows - 1

    def result(self, *, is_last: bool) -> Spooled:
        """Return the facts."""
        return Spooled(
            path=self._path,
            rows=self._rows,
            last_line=self.last_line,
            is_last=is_last,
            bad_lines=tuple(self.bad_lines),
            shifts=tuple(self._shifts),
            has_outer_blanks=self._has_outer_blanks,
        )


def rows_after(source: SacctText, line: int, most: int) -> Iterator[Block | Row | BadLine]:
    """Yield the rows behind a line; 0: all.

    A block has `most` of them at most.
    """
    for item in blocks(source.chunks, source.form, source.first_line, most):
        if not isinstance(item, Block):
            if item.line > line:
                yield item
        elif item.line + item.rows - 1 > line:
            yield item.behind(line)


def _has_outer_blanks(text: bytes) -> bool:
    """Return whether a field may begin or end with a blank.

    Most texts have few blanks, and looking for pairs of characters takes much longer.
    """
    first, *others = text.split(b" ")
    if not others:
        return False
    return (
        not first
        or first.endswith(_EDGES)
        or others[-1].startswith(_EDGES)
        or any(part.startswith(_EDGES) or part.endswith(_EDGES) for part in others[:-1])
    )
