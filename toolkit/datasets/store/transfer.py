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
            offset, end = span.offset, span.offset + span.length
            while offset < end:
                byte_count = os.preadv(descriptor, [buffer[: end - offset]], offset)
                if byte_count == 0:
                    return  # shorter than it should be: the hash will tell
                yield buffer[:byte_count]
                offset += byte_count
        finally:
            os.close(descriptor)


def write_chunk(
    pieces: Iterable[Bytes], descriptor: int, span: Span, expected_hash: str, disk: Disk
) -> bool:
    """Write a chunk at its offset; return whether it was expected."""
    digest, offset = hashlib.sha256(), span.offset
    for piece in pieces:
        if offset + len(piece) > span.offset + span.length:
            return False
        digest.update(piece)
        disk.write(descriptor, piece, offset)
        offset += len(piece)
    return offset == span.offset + span.length and digest.hexdigest() == expected_hash
