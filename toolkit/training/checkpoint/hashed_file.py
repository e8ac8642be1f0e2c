"""A file of a checkpoint: every block hashed as it is written, and checked as it is read.

Hashing by blocks lets a rank check just the part of a file that it needs, and several cores hash
one file. The hash made while training wrote the bytes is the one that every later copy of them is
held to. A file's `digest` is the hash over its blocks' hashes.
"""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from toolkit.training.checkpoint import hashes
from toolkit.training.checkpoint.block_reader import Window, threads
from toolkit.training.io.durable_files import ABSENT, read_twice

BLOCK = 16 << 20  # S3 takes parts of 5 MiB and more, and 10,000 of them: 156 GiB a file
_LARGE = 1 << 20


class Corrupt(Exception):  # noqa: N818  # reads as what it is at every raise and except
    """What is there, or absent, is not what was committed; the message says in what."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file as it was written; `hash` is the name of the hash that it is known by."""

    name: str
    size: int
    digest: str
    blocks: tuple[str, ...]  # of each BLOCK bytes, the last one shorter
    hash: str

    @classmethod
    def of(cls, name: str, size: int, blocks: Sequence[bytes], hash_: str) -> Self:
        total = hashes.new(hash_, b"".join(blocks)).hexdigest()
        return cls(name, size, total, tuple(block.hex() for block in blocks), hash_)

    def block_size(self, number: int) -> int:
        return min(BLOCK, self.size - number * BLOCK)


class HashingWriter:
    """A binary file for writing that knows the hashes of its content; on disk when closed.

    Other threads hash a large piece while it is written; on return it is the caller's again.
    Small ones are gathered first.
    """

    def __init__(self, path: Path, hash_: str = "") -> None:
        self._path, self._size = path, 0
        self._hash = hash_ or hashes.fastest()
        self._small = bytearray()
        self._blocks: list[hashes.Digest] = []  # the last one may still grow
        # Exclusive: a checkpoint's folder is new, nothing in it is ever written twice.
        self._stream: IO[bytes] = path.open("xb", buffering=0)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if len(view) < _LARGE:
            self._small += view
        if len(view) >= _LARGE or len(self._small) >= _LARGE:
            self._drain()
        if len(view) >= _LARGE:
            self._put(view)
        return len(view)

    def tell(self) -> int:
        return self._size + len(self._small)

    def flush(self) -> None:
        """The context's end flushes."""

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        """The context's end closes; writers that close by themselves close nothing."""

    def entry(self) -> FileEntry:
        """What was written, once the context has ended."""
        blocks = [block.digest() for block in self._blocks]
        return FileEntry.of(self._path.name, self._size, blocks, self._hash)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        with self._stream:
            if kind is None:
                self._drain()
                os.fsync(self._stream.fileno())

    def _drain(self) -> None:
        small, self._small = self._small, bytearray()
        self._put(memoryview(small))

    def _put(self, view: memoryview) -> None:
        descriptor, offset, done = self._stream.fileno(), self._size, 0
        hashing = self._take_up(view)
        try:
            while done < len(view):
                done += os.pwrite(descriptor, view[done:], offset + done)
            # Linux begins to write it back and waits for nothing: the disk works while we go on.
            os.posix_fadvise(descriptor, offset, len(view), os.POSIX_FADV_DONTNEED)
        finally:
            for work in hashing:  # the bytes are the caller's again on return
                work.result()

    def _take_up(self, view: memoryview) -> list[Future[object]]:
        """Take `view` up into the hashes; what is still to be waited for."""
        work: list[Future[object]] = []
        while view:
            if self._size % BLOCK == 0:
                self._blocks.append(hashes.new(self._hash))
            room = BLOCK - self._size % BLOCK
            piece, view = view[:room], view[room:]
            self._size += len(piece)
            if len(piece) < _LARGE:  # hashed sooner than handed to another thread
                self._blocks[-1].update(piece)
            else:
                work.append(threads().submit(self._blocks[-1].update, piece))
        return work


class VerifiedReader(io.RawIOBase):
    """A committed file for reading. No byte is given out whose block is not what was written.

    Read in order, the next blocks are read and hashed by other threads meanwhile. `good` is called
    with the number of each block that was found to be as it was written.
    """

    def __init__(
        self, folder: Path, entry: FileEntry, good: Callable[[int], object] = lambda _: None
    ) -> None:
        super().__init__()
        self._entry, self._good = entry, good
        self._position, self._held = 0, -1
        self._block = memoryview(b"")
        self._blocks = _Blocks(folder, entry)

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
            if offset == 0 and wanted - done >= BLOCK:
                size = self._fill(number, target[done:wanted])
            else:
                piece = self._hold(number, ahead=wanted < 2 * BLOCK)
                piece = piece[offset : offset + wanted - done]
                size = len(piece)
                target[done : done + size] = piece
            done += size
            self._position += size
        return done

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._entry.size - self._position)
        content = bytearray(left if size is None or size < 0 else min(size, left))
        self.readinto(content)
        return bytes(content)

    def close(self) -> None:
        self._blocks.close()
        super().close()

    def _hold(self, number: int, *, ahead: bool) -> memoryview:
        if number != self._held:
            in_order = number == self._held + 1
            self._block = self._blocks.get(number, ahead=ahead and in_order)
            self._held = number
            self._good(number)
        return self._block

    def _fill(self, number: int, target: memoryview) -> int:
        """Whole blocks, checked where the caller wants them; how many bytes."""
        self._held = -1
        count = self._blocks.fill(number, target)
        for good in range(number, number + count):
            self._good(good)
        return count * BLOCK


class _Blocks:
    """The checked blocks of one file; raises Corrupt for one that is not as it was written."""

    def __init__(self, folder: Path, entry: FileEntry) -> None:
        self._folder, self._entry = folder, entry
        self._stream = _open(folder, entry)
        self._window = Window(self._read, len(entry.blocks), BLOCK)
        self.fill = self._window.fill

    def get(self, number: int, *, ahead: bool) -> memoryview:
        """A block, good until the next call. `ahead`: those behind it are wanted next."""
        return self._window.get(number, ahead=ahead)[: self._entry.block_size(number)]

    def close(self) -> None:
        self._window.close()  # the descriptor is its threads' until then
        self._stream.close()

    def _read(self, number: int, buffer: memoryview) -> None:
        block = buffer[: self._entry.block_size(number)]
        try:
            done = _fill(block, self._stream, number * BLOCK)
        except OSError:  # by another handle: those of a client that was evicted stay bad
            with _open(self._folder, self._entry) as stream:
                done = _fill(block, stream, number * BLOCK)
        if hashes.new(self._entry.hash, block[:done]).hexdigest() != self._entry.blocks[number]:
            name = f"{self._folder.name}/{self._entry.name}"
            raise Corrupt(f"{name}: content differs from what was written")


def _fill(block: memoryview, stream: IO[bytes], offset: int) -> int:
    """How many bytes there are: a network filesystem may give less at a time."""
    done, descriptor = 0, stream.fileno()
    try:
        while done < len(block) and (got := os.preadv(descriptor, [block[done:]], offset + done)):
            done += got
    except OSError as error:
        error.filename = str(stream.name)
        raise
    return done


def read_file(folder: Path, entry: FileEntry) -> bytes:
    """The content of a file, checked; what was checked is what is returned. Raises Corrupt."""
    with VerifiedReader(folder, entry) as stream:
        return stream.read()


def read_block(folder: Path, entry: FileEntry, number: int) -> bytes:
    """One block of a file, checked. Raises Corrupt."""
    blocks = _Blocks(folder, entry)
    try:
        return bytes(blocks.get(number, ahead=False))
    finally:
        blocks.close()


def verify_file(folder: Path, entry: FileEntry, numbers: Sequence[int] | None = None) -> None:
    """Read a file, or some of its blocks, and compare with what was written. Raises Corrupt."""
    for _ in blocks(folder, entry, numbers):
        pass


def check_size(folder: Path, entry: FileEntry) -> None:
    """That the file is there and as large as it was written. Raises Corrupt."""
    _open(folder, entry).close()


def blocks(
    folder: Path, entry: FileEntry, numbers: Sequence[int] | None = None
) -> Iterator[memoryview]:
    """The checked blocks of a file, each overwritten by the next. Raises Corrupt."""
    every = range(len(entry.blocks)) if numbers is None else numbers
    found = _Blocks(folder, entry)
    try:
        for before, number in zip((-1, *every), every, strict=False):
            yield found.get(number, ahead=number == before + 1)
    finally:
        found.close()


def _open(folder: Path, entry: FileEntry) -> IO[bytes]:
    try:
        stream = read_twice(folder / entry.name, lambda path: path.open("rb", buffering=0))
    except ABSENT as error:
        raise Corrupt(f"{folder.name}/{entry.name}: {error.strerror}") from error
    size = os.fstat(stream.fileno()).st_size
    if size != entry.size:
        stream.close()
        raise Corrupt(f"{folder.name}/{entry.name}: {size} bytes, {entry.size} were written")
    return stream
