"""A file of a checkpoint: every block hashed as it is written, and checked as it is read.

Hashing by blocks lets a rank check just the part of a file that it needs, lets several cores hash
one file, and is what S3 computes for the parts of an upload: a hash made while training wrote the
bytes is the one that the last copy of them is held to. `sha256` of a file is the hash over its
blocks' hashes; for a file of one block or less, S3's composite checksum without its "-1".
"""

import functools
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

BLOCK = 16 << 20  # S3 takes parts of 5 MiB and more, and 10,000 of them: 156 GiB a file
_ALONE = 1 << 20  # less than this is hashed sooner than it is handed to another thread


class Corrupt(Exception):  # noqa: N818  # reads as what it is at every raise and except
    """What is there is not what was committed; the message says in what."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file as it was written."""

    name: str
    size: int
    sha256: str
    blocks: tuple[str, ...]  # of each BLOCK bytes, the last one shorter

    @classmethod
    def of(cls, name: str, size: int, digests: Sequence[bytes]) -> Self:
        total = hashlib.sha256(b"".join(digests)).hexdigest()
        return cls(name, size, total, tuple(digest.hex() for digest in digests))

    def block_size(self, number: int) -> int:
        return min(BLOCK, self.size - number * BLOCK)


class HashingWriter:
    """A binary file for writing that knows the hashes of its content; on disk when closed.

    Large writes are hashed by other threads while the disk takes them.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, 0
        self._blocks: list[Any] = []  # hashes; the last one may still grow
        # Exclusive: a checkpoint's folder is new, nothing in it is ever written twice.
        self._stream: IO[bytes] = path.open("xb")

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        hashing = self._hash(view)
        try:
            self._stream.write(view)
        finally:
            for work in hashing:  # the bytes are the caller's again on return
                work.result()
        return len(view)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        """The context's end closes; writers that close by themselves close nothing."""

    def entry(self) -> FileEntry:
        return FileEntry.of(self._path.name, self._size, [b.digest() for b in self._blocks])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        with self._stream:
            if kind is None:
                self._stream.flush()
                os.fsync(self._stream.fileno())

    def _hash(self, view: memoryview) -> list[Future[None]]:
        """Take `view` up into the hashes; what is still to be waited for."""
        work: list[Future[None]] = []
        while view:
            if self._size % BLOCK == 0:
                self._blocks.append(hashlib.sha256())
            room = BLOCK - self._size % BLOCK
            piece, view = view[:room], view[room:]
            self._size += len(piece)
            if len(piece) < _ALONE:
                self._blocks[-1].update(piece)
            else:
                work.append(_threads().submit(self._blocks[-1].update, piece))
        return work


class VerifiedReader(io.RawIOBase):
    """A committed file for reading. No byte is given out whose block is not what was written."""

    def __init__(self, folder: Path, entry: FileEntry) -> None:
        super().__init__()
        self._folder, self._entry = folder, entry
        self._position, self._held = 0, -1
        self._block = b""
        self._stream = _open(folder, entry)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._entry.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer but for what is behind the end: torch takes a short read for damage."""
        target = memoryview(buffer).cast("B")
        wanted = min(len(target), max(0, self._entry.size - self._position))
        done = 0
        while done < wanted:
            number, offset = divmod(self._position, BLOCK)
            piece = memoryview(self._hold(number))[offset : offset + wanted - done]
            target[done : done + len(piece)] = piece
            done += len(piece)
            self._position += len(piece)
        return done

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._entry.size - self._position)
        content = bytearray(left if size is None or size < 0 else min(size, left))
        self.readinto(content)
        return bytes(content)

    def close(self) -> None:
        self._stream.close()
        super().close()

    def _hold(self, number: int) -> bytes:
        if number != self._held:
            self._block = _read_block(self._folder, self._entry, self._stream.fileno(), number)
            self._held = number
        return self._block


def read_file(folder: Path, entry: FileEntry) -> bytes:
    """The content of a file, checked; what was checked is what is returned. Raises Corrupt."""
    with VerifiedReader(folder, entry) as stream:
        return stream.read()


def verify_file(folder: Path, entry: FileEntry) -> None:
    """Read a file and compare every block with what was written. Raises Corrupt."""
    for _ in blocks(folder, entry):
        pass


def blocks(folder: Path, entry: FileEntry) -> Iterable[bytes]:
    """The checked blocks of a file in order, read ahead by other threads. Raises Corrupt."""
    with _open(folder, entry) as stream:
        read: Callable[[int], bytes] = functools.partial(
            _read_block, folder, entry, stream.fileno()
        )
        waiting: list[Future[bytes]] = []
        for number in range(len(entry.blocks)):
            waiting.append(_threads().submit(read, number))
            if len(waiting) > _cores():
                yield waiting.pop(0).result()
        for work in waiting:
            yield work.result()


def _open(folder: Path, entry: FileEntry) -> IO[bytes]:
    try:
        stream = (folder / entry.name).open("rb", buffering=0)
    except OSError as error:
        raise Corrupt(f"{folder.name}/{entry.name}: can't be read: {error.strerror}") from error
    size = os.fstat(stream.fileno()).st_size
    if size != entry.size:
        stream.close()
        raise Corrupt(f"{folder.name}/{entry.name}: {size} bytes, {entry.size} were written")
    return stream


def _read_block(folder: Path, entry: FileEntry, descriptor: int, number: int) -> bytes:
    try:
        content = _pread(descriptor, entry.block_size(number), number * BLOCK)
    except OSError as error:
        raise Corrupt(f"{folder.name}/{entry.name}: can't be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != entry.blocks[number]:
        raise Corrupt(f"{folder.name}/{entry.name}: content differs from what was written")
    return content


def _pread(descriptor: int, size: int, offset: int) -> bytes:
    content = os.pread(descriptor, size, offset)
    while len(content) < size:  # a network filesystem may give less at a time
        more = os.pread(descriptor, size - len(content), offset + len(content))
        if not more:
            break
        content += more
    return content


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_cores(), thread_name_prefix="hashing")


@functools.cache
def _cores() -> int:
    return max(1, min(4, len(os.sched_getaffinity(0))))
