"""A dump of sacct on disk, plain or compressed, and the spool that DuckDB reads.

The spool holds whole rows alone. So DuckDB's reader meets no row that it would have to judge.
"""

from __future__ import annotations

import gzip
import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.usage.dump_text import BadLine, Block, blocks, dump_format
from toolkit.usage.errors import DumpUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO

    from toolkit.usage.dump_text import DumpFormat, Row, SacctText

SPOOL_DELIMITER = "\x1f"
_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20


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


def spool_rows(
    items: Iterator[Block | Row | BadLine], form: DumpFormat, path: Path, limit: int
) -> Spooled:
    """Write the next rows to the spool, until the limit is reached."""
    spool = _Spool(form, path)
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for item in items:
            if isinstance(item, BadLine):
                spool.bad_lines.append(item)
                spool.last_line = item.line
                count += 1
            else:
                line, lines = item if isinstance(item, Block) else (item.line, [item.text])
                file.write(spool.text(line, lines))
                count += len(lines)
            if count >= limit:
                return spool.result(is_last=False)
    return spool.result(is_last=True)


class _Spool:
    """A spool that is being written."""

    def __init__(self, form: DumpFormat, path: Path) -> None:
        self._path = path
        self.bad_lines: list[BadLine] = []
        self.last_line = 0
        self._delimiter = form.delimiter
        self._rows = 0
        self._shifts: list[tuple[int, int]] = []
        self._has_outer_blanks = False

    def text(self, line: int, lines: list[str]) -> str:
        """Return the text of rows that begin with this line."""
        text = _plain("".join(lines), self._delimiter)
        if not text.endswith("\n"):
            text += "\n"
        self._has_outer_blanks = self._has_outer_blanks or _has_outer_blanks(text)
        shift = line - self._rows
        if not self._shifts or self._shifts[-1][1] != shift:
            self._shifts.append((self._rows, shift))
        self._rows += len(lines)
        self.last_line = line + len(lines) - 1
        return text

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
    for item in blocks(source.lines, source.form, source.first_line, most):
        if not isinstance(item, Block):
            if item.line > line:
                yield item
        elif kept := item.lines[max(0, line + 1 - item.line) :]:
            yield Block(item.line + len(item.lines) - len(kept), kept)


def _has_outer_blanks(text: str) -> bool:
    """Return whether a field may begin or end with a blank."""
    pairs = (f" {SPOOL_DELIMITER}", f"{SPOOL_DELIMITER} ", " \n", "\n ")
    return text.startswith(" ") or any(pair in text for pair in pairs)


def _plain(text: str, delimiter: str) -> str:
    """Return rows as the spool has them.

    They have the spool's delimiter, and nothing that ends a line there."""
    if "\x00" in text or "\r" in text:
        text = text.replace("\x00", " ").replace("\r", " ")
    if delimiter == SPOOL_DELIMITER:
        return text
    if SPOOL_DELIMITER in text and SPOOL_DELIMITER not in delimiter:
        text = text.replace(SPOOL_DELIMITER, " ")
    return text.replace(delimiter, SPOOL_DELIMITER)
