"""Content in chunks of 16 MiB, each with its sha256: what files are known and checked by.

A file of many chunks is hashed, copied, verified and taken up again in any order and by several
threads at once; a hash over the whole could only be computed from front to back.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

CHUNK = 16 << 20
BUFFER = 256 << 10  # what stays in a core's cache between its read, its hash and its write

Bytes = bytes | bytearray | memoryview


class Span(NamedTuple):
    """A part of a file."""

    offset: int
    length: int


class Readable(Protocol):
    """Content that can be read from any place, into the caller's buffer or its own."""

    def pieces(self, span: Span, buffer: memoryview) -> Iterator[Bytes]:
        """The bytes of the span in order; each piece is valid until the next is asked for."""
        ...


def spans(size: int) -> Iterator[Span]:
    """The chunks of a file of `size` bytes; an empty file has one empty chunk."""
    for offset in range(0, max(size, 1), CHUNK):
        yield Span(offset, min(CHUNK, size - offset))


def count(size: int) -> int:
    """How many chunks a file of `size` bytes has."""
    return max(1, -(-size // CHUNK))


def object_name(chunks: Sequence[str]) -> str:
    """What a file's content is stored under: its sha256, or `t` and the sha256 over its chunks'.

    The letter keeps the two apart: a small file may hold the very bytes that the second is of.
    """
    if len(chunks) == 1:
        return chunks[0]
    return "t" + hashlib.sha256(bytes.fromhex("".join(chunks))).hexdigest()


def digest(pieces: Iterable[Bytes]) -> str:
    """The sha256 of the pieces put together."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()
