"""Reads files piece by piece; hashes and writes the pieces on the way."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from toolkit.datasets.chunks import Bytes, Span
from toolkit.datasets.filesystem import Disk


class LocalFile:
    """A file's content. A symbolic link as the last part of its path is not followed."""

    def __init__(self, path: str | Path) -> None:
        self._path = path

    def pieces(self, span: Span, buffer: memoryview) -> Iterator[Bytes]:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            at, end = span.offset, span.offset + span.length
            while at < end:
                read = os.preadv(descriptor, [buffer[: end - at]], at)
                if read == 0:
                    return  # shorter than it should be: the hash will tell
                yield buffer[:read]
                at += read
        finally:
            os.close(descriptor)


def place(pieces: Iterable[Bytes], descriptor: int, span: Span, expected: str, disk: Disk) -> bool:
    """Write a chunk at its offset; return whether it was expected."""
    digest, at = hashlib.sha256(), span.offset
    for piece in pieces:
        if at + len(piece) > span.offset + span.length:
            return False
        digest.update(piece)
        disk.write(descriptor, piece, at)
        at += len(piece)
    return at == span.offset + span.length and digest.hexdigest() == expected
