"""Small datasets, and a source that serves them from memory."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolkit.datasets import chunks
from toolkit.datasets.store.manifest import File, Manifest, make_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def described(content: Mapping[str, bytes]) -> Manifest:
    """Return the manifest of files in memory."""
    return make_manifest(
        File(
            path,
            len(data),
            tuple(
                chunks.digest([data[span.offset : span.offset + span.length]])
                for span in chunks.spans(len(data))
            ),
        )
        for path, data in content.items()
    )


def tree(folder: Path) -> dict[str, bytes]:
    """Return the content of each file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def write_tree(folder: Path, content: Mapping[str, bytes]) -> Path:
    for path, data in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


class MemorySource:
    """A source that serves files from memory and counts the bytes.

    The files of `flipped` come with a wrong bit.
    """

    workers = 1

    def __init__(self, content: Mapping[str, bytes], flipped: tuple[str, ...] = ()) -> None:
        self._content, self._flipped = content, flipped
        self.served = 0

    def open(self, file: File):
        data = bytearray(self._content[file.path])
        if file.path in self._flipped and data:
            data[-1] ^= 1
        return _Bytes(self, bytes(data))

    @contextmanager
    def opened(self):
        yield described(self._content), self


class _Bytes:
    def __init__(self, source: MemorySource, data: bytes) -> None:
        self._source, self._data = source, data

    def pieces(self, span, buffer):
        data = self._data[span.offset : span.offset + span.length]
        half = len(data) // 2
        for piece in (data[:half], data[half:]):
            self._source.served += len(piece)
            yield piece
