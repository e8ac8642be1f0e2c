"""Hash every block of a checkpoint's file as it is written, and verify it as it is read.

With hashes by blocks, a rank can verify just the part of a file that it needs, and several cores
hash one file. The hash is made while training writes the bytes, and every later copy is compared
with it. A file's `digest` is the hash over its blocks' hashes.
"""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from toolkit.training.checkpoint import hashes
from toolkit.training.checkpoint.block_reader import BlockWindow, thread_pool
from toolkit.training.errors import Corrupt
from toolkit.training.io.durable_files import ABSENT, read_twice

BLOCK = 16 << 20  # bytes. S3 takes 10,000 parts of 5 MiB or more: 156 GiB a file
_LARGE_PIECE = 1 << 20  # bytes; smaller pieces are gathered before they are written


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as it was written."""

    name: str
    size: int
    digest: str
    blocks: tuple[str, ...]  # the hash of each block; the last block may be shorter than BLOCK
    hash: str  # name of the hash

    @classmethod
    def from_hashes(cls, name: str, size: int, blocks: Sequence[bytes], hash_name: str) -> Self:
        digest = hashes.new(hash_name, b"".join(blocks)).hexdigest()
        return cls(name, size, digest, tuple(block.hex() for block in blocks), hash_name)

    def block_size(self, number: int) -> int:
        return min(BLOCK, self.size - number * BLOCK)


class HashingWriter:
    """A binary file for writing that hashes its content. It is on disk when closed.

    Other threads hash a large piece while it is written. On return the piece is the caller's again.
    Small pieces are gathered first.
    """

    def __init__(self, path: Path, hash_name: str = "") -> None:
        self._path, self._size = path, 0
        self._hash_name = hash_name or hashes.fastest()
        self._small_pieces = bytearray()
        self._blocks: list[hashes.Digest] = []  # one hash a block; the last block may still grow
        # Exclusive: a checkpoint's folder is new, and no file in it is ever written twice.
        self._stream: IO[bytes] = path.open("xb", buffering=0)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if len(view) < _LARGE_PIECE:
            self._small_pieces += view
        if len(view) >= _LARGE_PIECE or len(self._small_pieces) >= _LARGE_PIECE:
            self._write_small_pieces()
        if len(view) >= _LARGE_PIECE:
            self._write_and_hash(view)
        return len(view)

    def tell(self) -> int:
        return self._size + len(self._small_pieces)

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
        return FileEntry.from_hashes(self._path.name, self._size, blocks, self._hash_name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        with self._stream:
            if kind is None:
                self._write_small_pieces()
                os.fsync(self._stream.fileno())

    def _write_small_pieces(self) -> None:
        pieces, self._small_pieces = self._small_pieces, bytearray()
        self._write_and_hash(memoryview(pieces))

    def _write_and_hash(self, view: memoryview) -> None:
        descriptor, offset, written = self._stream.fileno(), self._size, 0
        hash_work = self._start_hashing(view)
        try:
            while written < len(view):
                written += os.pwrite(descriptor, view[written:], offset + written)
            # Linux begins to write the bytes back and returns at once: the disk works meanwhile.
            os.posix_fadvise(descriptor, offset, len(view), os.POSIX_FADV_DONTNEED)
        finally:
            for work in hash_work:  # on return the caller may change the bytes
                work.result()

    def _start_hashing(self, view: memoryview) -> list[Future[object]]:
        """Add `view` to the hashes.

        Returns the hashing that other threads still do.
        """
        work: list[Future[object]] = []
        while view:
            if self._size % BLOCK == 0:
                self._blocks.append(hashes.new(self._hash_name))
            room = BLOCK - self._size % BLOCK
            piece, view = view[:room], view[room:]
            self._size += len(piece)
            if len(piece) < _LARGE_PIECE:  # hashing it takes less time than handing it to a thread
                self._blocks[-1].update(piece)
            else:
                work.append(thread_pool().submit(self._blocks[-1].update, piece))
        return work


class VerifiedReader(io.RawIOBase):
    """A committed file for reading. It returns no byte of a block that differs from the written
    one.

    When it is read in order, other threads read and hash the next blocks meanwhile. `on_verified`
    is called with the number of each block that was verified.
    """

    def __init__(
        self, folder: Path, entry: FileEntry, on_verified: Callable[[int], object] = lambda _: None
    ) -> None:
        super().__init__()
        self._entry, self._on_verified = entry, on_verified
        self._position, self._block_number = 0, -1
        self._block = memoryview(b"")
        self._blocks = _VerifiedBlocks(folder, entry)

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
        length = min(len(target), max(0, self._entry.size - self._position))
        filled = 0
        while filled < length:
            number, offset = divmod(self._position, BLOCK)
            if offset == 0 and length - filled >= BLOCK:
                size = self._fill_blocks(number, target[filled:length])
            else:
                piece = self._load_block(number, ahead=length < 2 * BLOCK)
                piece = piece[offset : offset + length - filled]
                size = len(piece)
                target[filled : filled + size] = piece
            filled += size
            self._position += size
        return filled

    def read(self, size: int = -1) -> bytes:
        remaining = max(0, self._entry.size - self._position)
        content = bytearray(remaining if size is None or size < 0 else min(size, remaining))
        self.readinto(content)
        return bytes(content)

    def close(self) -> None:
        self._blocks.close()
        super().close()

    def _load_block(self, number: int, *, ahead: bool) -> memoryview:
        if number != self._block_number:
            in_order = number == self._block_number + 1
            self._block = self._blocks.get(number, ahead=ahead and in_order)
            self._block_number = number
            self._on_verified(number)
        return self._block

    def _fill_blocks(self, number: int, target: memoryview) -> int:
        """Read whole verified blocks straight into `target`.

        Returns the number of bytes.
        """
        self._block_number = -1
        count = self._blocks.fill(number, target)
        for verified_number in range(number, number + count):
            self._on_verified(verified_number)
        return count * BLOCK


class _VerifiedBlocks:
    """The verified blocks of one file. Raises Corrupt for a block that differs from the written
    one.
    """

    def __init__(self, folder: Path, entry: FileEntry) -> None:
        self._folder, self._entry = folder, entry
        self._stream = _open(folder, entry)
        self._window = BlockWindow(self._read, len(entry.blocks), BLOCK)
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
            length = _read_fully(block, self._stream, number * BLOCK)
        except OSError:  # tried with a new handle: those of an evicted client stay bad
            with _open(self._folder, self._entry) as stream:
                length = _read_fully(block, stream, number * BLOCK)
        if hashes.new(self._entry.hash, block[:length]).hexdigest() != self._entry.blocks[number]:
            name = f"{self._folder.name}/{self._entry.name}"
            raise Corrupt(f"{name}: content differs from what was written")


def _read_fully(block: memoryview, stream: IO[bytes], offset: int) -> int:
    """Fill a block from the file, and return the number of bytes.

    A network filesystem may return less at a time.
    """
    length, descriptor = 0, stream.fileno()
    try:
        while length < len(block) and (
            count := os.preadv(descriptor, [block[length:]], offset + length)
        ):
            length += count
    except OSError as error:
        error.filename = str(stream.name)
        raise
    return length


def read_file(folder: Path, entry: FileEntry) -> bytes:
    """Return the content of a file, verified.

    The very bytes that were verified are returned. Raises Corrupt.
    """
    with VerifiedReader(folder, entry) as stream:
        return stream.read()


def read_block(folder: Path, entry: FileEntry, number: int) -> bytes:
    """Return one block of a file, verified. Raises Corrupt."""
    with closing(_VerifiedBlocks(folder, entry)) as blocks:
        return bytes(blocks.get(number, ahead=False))


def verify_file(folder: Path, entry: FileEntry, numbers: Sequence[int] | None = None) -> None:
    """Verify a file, or some of its blocks. Raises Corrupt."""
    for _ in iter_blocks(folder, entry, numbers):
        pass


def check_size(folder: Path, entry: FileEntry) -> None:
    """Check that the file exists and has its size. Raises Corrupt."""
    _open(folder, entry).close()


def iter_blocks(
    folder: Path, entry: FileEntry, numbers: Sequence[int] | None = None
) -> Iterator[memoryview]:
    """Yield the verified blocks of a file.

    Each is overwritten by the next. Raises Corrupt.
    """
    block_numbers = range(len(entry.blocks)) if numbers is None else numbers
    with closing(_VerifiedBlocks(folder, entry)) as blocks:
        for previous, number in zip((-1, *block_numbers), block_numbers, strict=False):
            yield blocks.get(number, ahead=number == previous + 1)


def _open(folder: Path, entry: FileEntry) -> IO[bytes]:
    try:
        stream = read_twice(folder / entry.name, lambda path: path.open("rb", buffering=0))
    except ABSENT as error:
        raise Corrupt(f"{folder.name}/{entry.name}: {error.strerror}") from error
    size = os.fstat(stream.fileno()).st_size
    if size != entry.size:
        stream.close()
        raise Corrupt(
            f"{folder.name}/{entry.name}: file has {size} bytes; {entry.size} were written"
        )
    return stream
