"""Hash every block of a checkpoint's file as it is written, and verify it as it is read.

With hashes by blocks, a rank can verify just the part of a file that it needs, and several cores
hash one file. The hash is made while training writes the bytes, and every later copy is compared
with it. A file's `digest` is the hash over its blocks' hashes.
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

BLOCK = 16 << 20  # bytes. S3 takes 10,000 parts of 5 MiB or more: 156 GiB a file
_LARGE = 1 << 20  # bytes; smaller pieces are gathered before they are written


class Corrupt(Exception):  # noqa: N818  # reads as what it is at every raise and except
    """The error of a file that differs from the committed one, or is absent.

    The message says in what it differs.
    """


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as it was written."""

    name: str
    size: int
    digest: str
    blocks: tuple[str, ...]  # the hash of each block; the last block may be shorter than BLOCK
    hash: str  # name of the hash

    @classmethod
    def of(cls, name: str, size: int, blocks: Sequence[bytes], hash_: str) -> Self:
        total = hashes.new(hash_, b"".join(blocks)).hexdigest()
        return cls(name, size, total, tuple(block.hex() for block in blocks), hash_)

    def block_size(self, number: int) -> int:
        return min(BLOCK, self.size - number * BLOCK)


class HashingWriter:
    """A binary file for writing that hashes its content. It is on disk when closed.

    Other threads hash a large piece while it is written. On return the piece is the caller's again.
    Small pieces are gathered first.
    """

    def __init__(self, path: Path, hash_: str = "") -> None:
        self._path, self._size = path, 0
        self._hash = hash_ or hashes.fastest()
        self._small = bytearray()
        self._blocks: list[hashes.Digest] = []  # one hash a block; the last block may still grow
        # Exclusive: a checkpoint's folder is new, and no file in it is ever written twice.
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
        """Do nothing: the context's end flushes."""

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        """Do nothing: the context's end closes.

        Some writers close the file by themselves.
        """

    def entry(self) -> FileEntry:
        """Return the entry of the written file, after the context's end."""
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
            # Linux begins to write the bytes back and returns at once: the disk works meanwhile.
            os.posix_fadvise(descriptor, offset, len(view), os.POSIX_FADV_DONTNEED)
        finally:
            for work in hashing:  # on return the caller may change the bytes
                work.result()

    def _take_up(self, view: memoryview) -> list[Future[object]]:
        """Add `view` to the hashes.

        Returns the hashing that other threads still do.
        """
        work: list[Future[object]] = []
        while view:
            if self._size % BLOCK == 0:
                self._blocks.append(hashes.new(self._hash))
            room = BLOCK - self._size % BLOCK
            piece, view = view[:room], view[room:]
            self._size += len(piece)
            if len(piece) < _LARGE:  # hashing it takes less time than handing it to a thread
                self._blocks[-1].update(piece)
            else:
                work.append(threads().submit(self._blocks[-1].update, piece))
        return work


class VerifiedReader(io.RawIOBase):
    """A committed file for reading. It returns no byte of a block that differs from the written
    one.

    When it is read in order, other threads read and hash the next blocks meanwhile. `good` is
    called with the number of each block that was verified.
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
        """Fill the buffer, up to the end of the file.

        torch takes a short read for damage.
        """
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
        """Read whole verified blocks straight into `target`.

        Returns the number of bytes.
        """
        self._held = -1
        count = self._blocks.fill(number, target)
        for good in range(number, number + count):
            self._good(good)
        return count * BLOCK


class _Blocks:
    """The verified blocks of one file. Raises Corrupt for a block that differs from the written
    one.
    """

    def __init__(self, folder: Path, entry: FileEntry) -> None:
        self._folder, self._entry = folder, entry
        self._stream = _open(folder, entry)
        self._window = Window(self._read, len(entry.blocks), BLOCK)
        self.fill = self._window.fill

    def get(self, number: int, *, ahead: bool) -> memoryview:
        """Return a block, valid until the next call.

        `ahead` means that the next blocks are wanted soon.
        """
        return self._window.get(number, ahead=ahead)[: self._entry.block_size(number)]

    def close(self) -> None:
        self._window.close()  # its threads use the descriptor until then
        self._stream.close()

    def _read(self, number: int, buffer: memoryview) -> None:
        block = buffer[: self._entry.block_size(number)]
        try:
            done = _fill(block, self._stream, number * BLOCK)
        except OSError:  # tried with a new handle: those of an evicted client stay bad
            with _open(self._folder, self._entry) as stream:
                done = _fill(block, stream, number * BLOCK)
        if hashes.new(self._entry.hash, block[:done]).hexdigest() != self._entry.blocks[number]:
            name = f"{self._folder.name}/{self._entry.name}"
            raise Corrupt(f"{name}: content differs from what was written")


def _fill(block: memoryview, stream: IO[bytes], offset: int) -> int:
    """Fill a block from the file, and return the number of bytes.

    A network filesystem may return less at a time.
    """
    done, descriptor = 0, stream.fileno()
    try:
        while done < len(block) and (got := os.preadv(descriptor, [block[done:]], offset + done)):
            done += got
    except OSError as error:
        error.filename = str(stream.name)
        raise
    return done


def read_file(folder: Path, entry: FileEntry) -> bytes:
    """Return the content of a file, verified.

    The very bytes that were verified are returned. Raises Corrupt.
    """
    with VerifiedReader(folder, entry) as stream:
        return stream.read()


def read_block(folder: Path, entry: FileEntry, number: int) -> bytes:
    """Return one block of a file, verified. Raises Corrupt."""
    blocks = _Blocks(folder, entry)
    try:
        return bytes(blocks.get(number, ahead=False))
    finally:
        blocks.close()


def verify_file(folder: Path, entry: FileEntry, numbers: Sequence[int] | None = None) -> None:
    """Verify a file, or some of its blocks. Raises Corrupt."""
    for _ in blocks(folder, entry, numbers):
        pass


def check_size(folder: Path, entry: FileEntry) -> None:
    """Check that the file exists and has its size. Raises Corrupt."""
    _open(folder, entry).close()


def blocks(
    folder: Path, entry: FileEntry, numbers: Sequence[int] | None = None
) -> Iterator[memoryview]:
    """Yield the verified blocks of a file.

    Each is overwritten by the next. Raises Corrupt.
    """
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
