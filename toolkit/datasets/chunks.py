"""Chunks of 16 MiB, each with its sha256: files are identified and checked by them.

A file of many chunks is hashed, copied, verified and resumed in any order, by several
threads at once. A hash over the whole file could only be computed from front to back.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

CHUNK = 16 << 20

Bytes = bytes | bytearray | memoryview


class Span(NamedTuple):
    """A part of a file."""

    offset: int
    length: int


class Readable(Protocol):
    """Content that can be read at any offset, into the caller's buffer or its own."""

    def pieces(self, span: Span, buffer: memoryview) -> Iterator[Bytes]:
        """Yield the span's bytes in order.

        Each piece is valid until the next one is requested.
        """
        ...


def spans(size: int) -> Iterator[Span]:
    """Yield the chunks of `size` bytes; one empty chunk for 0."""
    for offset in range(0, max(size, 1), CHUNK):
        yield Span(offset, min(CHUNK, size - offset))


def count(size: int) -> int:
    """Return the number of chunks of a file of `size` bytes."""
    return max(1, -(-size // CHUNK))


def object_name(chunks: Sequence[str]) -> str:
    """Return the name that a file's content is stored under.

    For a file of one chunk it is the sha256, otherwise `t` and the sha256 over its
    chunks' hashes. The letter keeps the two apart: a small file may hold the very bytes
    that the second hash is of.
    """
    if len(chunks) == 1:
        return chunks[0]
    return "t" + hashlib.sha256(bytes.fromhex("".join(chunks))).hexdigest()


def digest(pieces: Iterable[Bytes]) -> str:
    """Return the sha256 of the pieces put together."""
    sha256 = hashlib.sha256()
    for piece in pieces:
        sha256.update(piece)
    return sha256.hexdigest()
