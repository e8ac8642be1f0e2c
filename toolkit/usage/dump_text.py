"""The text of a sacct dump: its header, its delimiter, and its rows made whole. Pure.

`sacct -P` escapes nothing, and names and comments are free text of users. A name may hold a
line break or the delimiter. A row is whole if it has as many delimiters as the header. What is
broken by line breaks is joined; what can't be made whole is set aside, and never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from toolkit.usage.errors import DumpUnreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FREE_TEXT = frozenset({"jobname", "comment", "admincomment", "systemcomment", "workdir"})
"""Fields that users write, in small letters."""

LONGEST_ROW = 1_000_000
"""Characters of a row: a longer one is damage."""

BYTES_A_BLOCK = 1 << 19
"""Bytes that are looked at at once. Nearly all lines in them are rows, each by itself."""

ROWS_A_BLOCK = 1 << 16

SPOOL_DELIMITER = "\x1f"
"""The delimiter of rows as DuckDB reads them."""
_SPOOL = SPOOL_DELIMITER.encode()
_STRANGE = (b"\x00", b"\r", _SPOOL)
"""What would end a field or a line in the spool, and is a blank there."""
_NO_STRANGE = {item[0]: " " for item in _STRANGE}
_NOT_COUNTED = bytes(set(range(256)) - set(_SPOOL + b"\n"))

# sacct's field names have letters and digits alone. Whatever follows the first is the delimiter.
_FIRST_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9]*([^A-Za-z0-9]+)")

_ONE_OF = (("jobid", "jobidraw"), ("submit",), ("start",), ("end",))
_CALL = (
    "sacct -a -D -X -P --noconvert -S 2026-01-01 -o DBIndex,JobIDRaw,JobID,Restarts,Cluster,"
    "Partition,Account,User,QOS,Submit,Eligible,Start,End,State,ExitCode,DerivedExitCode,NNodes,AllocTRES,"
    "NodeList,AdminComment,Comment,JobName; leave out a field that sacct calls invalid"
)


@dataclass(frozen=True, slots=True)
class DumpFormat:
    """The delimiter and the fields of a dump, as its header names them."""

    delimiter: str
    fields: tuple[str, ...]  # in small letters; an empty name is no field

    @property
    def delimiters(self) -> int:
        """Return how many delimiters a whole row has."""
        return len(self.fields) - 1

    @property
    def ends_with_free_text(self) -> bool:
        """Return whether users write a row's last field."""
        return self.fields[-1] in FREE_TEXT


@dataclass(frozen=True, slots=True)
class SacctText:
    """The lines of a dump, or of a page that the head wrote.

    A page names its delimiter and fields: `DumpFormat(page.delimiter, fields in small letters)`.
    """

    name: str  # of the file or the object
    sha256: str  # of its content, by which it is known again
    form: DumpFormat
    chunks: Iterable[bytes]  # whole lines each, as `dump_file.chunks` yields them
    first_line: int = 1  # the number of the first of them


class Row(NamedTuple):  # made a million times, and a dataclass takes three times as long
    """A whole row: as many delimiters as the header has."""

    line: int  # of the file, from 1
    text: str


class BadLine(NamedTuple):
    """A line that is no row, nor a part of one."""

    line: int
    text: str
    reason: str


def dump_format(header: str, delimiter: str | None = None) -> DumpFormat:
    """Return a dump's format from its first line.

    Raises DumpUnreadable if the line names no fields, or lacks one that is needed.
    """
    header = header.strip("\r\n\ufeff")
    if delimiter is None:
        first_field = _FIRST_FIELD.match(header)
        if first_field is None:
            raise _no_header(header)
        delimiter = first_field[1]
    fields = tuple(name.strip().lower() for name in header.split(delimiter))
    if not all(name.isalnum() for name in fields if name):
        raise _no_header(header)
    missing = [names[-1] for names in _ONE_OF if not set(names) & set(fields)]
    if missing:
        raise DumpUnreadable(
            f"the dump has no field {', '.join(missing)}",
            next_step=f"dump it by: {_CALL}",
        )
    return DumpFormat(delimiter, fields)


def _no_header(header: str) -> DumpUnreadable:
    return DumpUnreadable(
        f"the first line names no fields of sacct: {header[:80]!r}",
        next_step=f"keep the header (no --noheader), or give --delimiter. A good call: {_CALL}",
    )


class Block(NamedTuple):
    """Lines that follow each other, each of them a whole row."""

    line: int  # of the first
    rows: int
    text: bytes  # with the spool's delimiter; each row has its line break

    def behind(self, line: int) -> Block:
        """Return the rows behind a line of the dump."""
        skipped = max(0, line + 1 - self.line)
        if not skipped:
            return self
        text = self.text.split(b"\n", skipped)[skipped]
        return Block(self.line + skipped, self.rows - skipped, text)


def blocks(
    chunks: Iterable[bytes], form: DumpFormat, first_line: int = 2, most: int = ROWS_A_BLOCK
) -> Iterator[Block | Row | BadLine]:
    """Yield the rows and the bad lines of a dump.

    Lines that are rows come in blocks, of `most` at most. This also reads the pages that the head
    writes: their delimiter can't be in a name, so each row becomes whole.
    """
    joiner = _Joiner(form)
    number = first_line
    for chunk in chunks:
        text = _rows_alone(chunk, form)
        if text is not None:
            yield from joiner.end(number)
            count = text.count(b"\n")
            yield from _divided(Block(number, count, text), most)
            number += count
            continue
        *lines, rest = chunk.decode(errors="replace").split("\n")
        for line in [*(f"{line}\n" for line in lines), *filter(None, [rest])]:
            yield from joiner.add(line, number, line.count(form.delimiter))
            number += 1
    yield from joiner.end(number)


def _rows_alone(chunk: bytes, form: DumpFormat) -> bytes | None:
    """Return lines as the spool has them, if each is a row.

    None: one of them may be no row by itself. A row without its fields' text is its delimiters.
    """
    if len(chunk) >= LONGEST_ROW or not _is_text(chunk):
        return None
    delimiter = form.delimiter.encode()
    strange = [item for item in _STRANGE if item in chunk and item not in delimiter]
    if strange and b" " in delimiter:
        return None
    for item in strange:
        chunk = chunk.replace(item, b" ")
    if delimiter != _SPOOL:
        if _SPOOL in delimiter and _SPOOL in chunk.replace(delimiter, b""):
            return None
        chunk = chunk.replace(delimiter, _SPOOL)
    if not chunk.endswith(b"\n"):
        chunk += b"\n"
    found = chunk.translate(None, _NOT_COUNTED)
    row = _SPOOL * form.delimiters + b"\n"
    return chunk if found == row * chunk.count(b"\n") else None


def _is_text(chunk: bytes) -> bool:
    if chunk.isascii():
        return True
    try:
        chunk.decode()
    except UnicodeDecodeError:
        return False
    return True


def _divided(block: Block, most: int) -> Iterator[Block]:
    """Yield a block as several, of `most` rows at most."""
    while block.rows > most:
        rest = block.behind(block.line + most - 1)
        yield Block(block.line, most, block.text[: -len(rest.text)])
        block = rest
    yield block


def spool_text(text: str, form: DumpFormat) -> str:
    """Return a row as the spool has it.

    It has the spool's delimiter, and nothing else that would end a field or a line there.
    """
    return SPOOL_DELIMITER.join(
        field.translate(_NO_STRANGE) for field in text.split(form.delimiter)
    )


class _Joiner:
    """A reader of lines of which some are parts of rows."""

    def __init__(self, form: DumpFormat) -> None:
        self._form = form
        self._begun: list[str] = []  # the lines of a row that is not whole yet
        self._count = 0  # of their delimiters

    def add(self, line: str, number: int, found: int) -> Iterator[Row | BadLine]:
        """Yield what becomes whole with a line, which has `found` delimiters."""
        wanted, begun = self._form.delimiters, self._begun
        if found == wanted and not begun and len(line) < LONGEST_ROW:
            yield Row(number, line.rstrip("\n"))
            return
        fits = begun and self._count + found <= wanted
        if fits and sum(map(len, begun)) + len(line) < LONGEST_ROW:
            begun.append(line)
            self._count += found
            if self._count == wanted:
                yield Row(number - len(begun) + 1, "".join(begun).rstrip("\n").replace("\n", " "))
                self._begun, self._count = [], 0
            return
        yield from self.end(number)
        yield from _alone(line, number, found, self._form)
        if 0 < found < wanted:
            self._begun, self._count = [line], found

    def end(self, number: int) -> Iterator[BadLine]:
        """Yield the row that is not whole before a line."""
        if self._begun:
            text = "".join(self._begun).rstrip("\n").replace("\n", " ")
            reason = f"fewer than {self._form.delimiters + 1} fields"
            yield BadLine(number - len(self._begun), text, reason)
            self._begun, self._count = [], 0


def _alone(line: str, number: int, found: int, form: DumpFormat) -> Iterator[Row | BadLine]:
    """Yield what becomes of a line that continues no row."""
    wanted = form.delimiters
    text = line.rstrip("\n")
    if len(line) >= LONGEST_ROW:
        yield BadLine(number, text[:1000], f"a row has fewer than {LONGEST_ROW:,} characters")
    elif found == wanted:
        yield Row(number, text)
    elif found > wanted and form.ends_with_free_text:
        # What is too much belongs to the name at the end.
        parts = text.split(form.delimiter)
        whole = [*parts[:wanted], " ".join(parts[wanted:])]
        yield Row(number, form.delimiter.join(whole))
    elif found > wanted:
        yield BadLine(number, text, f"{found + 1} fields, not {wanted + 1}")
    elif found == 0 and text.strip() and not form.ends_with_free_text:
        yield BadLine(number, text, "no delimiter")
