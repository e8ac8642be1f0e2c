"""A dump of sacct on disk, plain or compressed, and the spool that DuckDB reads.

The spool holds whole rows alone, each behind the number of its line. So DuckDB's reader meets no
row that it would have to judge.
"""

from __future__ import annotations

import gzip
import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from toolkit.usage.dump_text import (
    BadLine,
    DumpFormat,
    Row,
    SacctText,
    dump_format,
    whole_rows,
)
from toolkit.usage.errors import DumpUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO

SPOOL_DELIMITER = "\x1f"
_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Spooled:
    """A part of a dump in the spool."""

    rows: int
    last_line: int  # of the file
    bad_lines: tuple[BadLine, ...]


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
def opened(path: Path) -> Iterator[TextIO]:
    """Open a dump as text; what is no UTF-8 is replaced.

    Raises DumpUnreadable, also for a compressed file that ends early.
    """
    try:
        with path.open("rb") as file:
            is_compressed = file.read(2) == _GZIP
        opener = gzip.open if is_compressed else open
        with opener(path, "rt", encoding="utf-8", errors="replace", newline="\n") as text:
            yield text
    except (OSError, EOFError) as error:
        raise DumpUnreadable(f"can't read {path}: {error}") from error


def header_of(text: TextIO, delimiter: str | None) -> DumpFormat:
    """Return the format of an open dump, whose first line it takes.

    Raises DumpUnreadable.
    """
    return dump_format(text.readline(1 << 16), delimiter)


def spool_rows(rows: Iterator[Row | BadLine], form: DumpFormat, path: Path, limit: int) -> Spooled:
    """Write the next rows to the spool, at most `limit` of them."""
    count, last_line = 0, 0
    bad_lines: list[BadLine] = []
    with path.open("w", encoding="utf-8", newline="\n") as spool:
        for row in islice(rows, limit):
            last_line = row.line
            if isinstance(row, BadLine):
                bad_lines.append(row)
                continue
            count += 1
            spool.write(f"{row.line}{SPOOL_DELIMITER}{_plain(row.text, form.delimiter)}\n")
    return Spooled(count, last_line, tuple(bad_lines))


def rows_after(source: SacctText, line: int) -> Iterator[Row | BadLine]:
    """Yield the rows behind a line; 0: all."""
    for row in whole_rows(source.lines, source.form, source.first_line):
        if row.line > line:
            yield row


def _plain(text: str, delimiter: str) -> str:
    """Return a row as the spool has it.

    It has the spool's delimiter, and nothing that ends a line there."""
    if "\x00" in text or "\r" in text:
        text = text.replace("\x00", " ").replace("\r", " ")
    if delimiter == SPOOL_DELIMITER:
        return text
    if SPOOL_DELIMITER in text and SPOOL_DELIMITER not in delimiter:
        text = text.replace(SPOOL_DELIMITER, " ")
    return text.replace(delimiter, SPOOL_DELIMITER)
