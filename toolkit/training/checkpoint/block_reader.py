"""Read blocks ahead and hash them in threads, outside the GIL."""

import functools
import mmap
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

_KEPT = 4  # number of blocks that are kept beside those read ahead

Read = Callable[[int, memoryview], None]


class Window:
    """A window on the blocks of one file, which other threads read. A few blocks are kept.

    torch reads a tensor's end first, then its beginning and from there on. It comes back to the
    lowest block last. `read` puts a block into memory, and raises an error for a block that can't
    be trusted.
    """

    def __init__(self, read: Read, count: int, size: int) -> None:
        self._read, self._count, self._size = read, count, size
        self._kept: dict[int, tuple[Future[None], memoryview]] = {}
        self._spare: list[memoryview] = []

    def get(self, number: int, *, ahead: bool) -> memoryview:
        """Return a block, valid until the next call.

        `ahead` means that the next blocks are wanted soon.
        """
        last = min(number + lanes(), self._count - 1) if ahead else number
        missing = [other for other in range(number, last + 1) if other not in self._kept]
        self._make_room(len(missing), number, last)
        for other in missing:
            # Memory is used again: to have the kernel zero new memory costs a third of a hash.
            buffer = self._spare.pop() if self._spare else memoryview(mmap.mmap(-1, self._size))
            self._kept[other] = threads().submit(self._read, other, buffer), buffer
        work, buffer = self._kept[number]
        work.result()
        return buffer

    def fill(self, first: int, target: memoryview) -> int:
        """Read whole blocks straight into `target`.

        Returns their number.
        """
        count = len(target) // self._size
        work = []
        try:
            for at in range(count):
                place = target[at * self._size : (at + 1) * self._size]
                if first + at in self._kept:
                    place[:] = self.get(first + at, ahead=False)
                else:
                    work.append(threads().submit(self._read, first + at, place))
        finally:
            wait(work)  # `target` is the caller's, which may free it when this raises
        for done in work:
            done.result()
        return count

    def close(self) -> None:
        """Wait until no thread reads any more."""
        wait([work for work, _ in self._kept.values()])

    def _make_room(self, wanted: int, first: int, last: int) -> None:
        while len(self._kept) + wanted > lanes() + _KEPT:
            others = [number for number in self._kept if not first <= number <= last]
            work, buffer = self._kept.pop(min(others) if min(others) < first else max(others))
            wait([work])
            self._spare.append(buffer)


@functools.cache
def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(lanes(), thread_name_prefix="blocks")


@functools.cache
def lanes() -> int:
    """Return how many blocks are worked on at a time.

    It is small: a rank shares its instance with other ranks, and with the training.
    """
    return max(2, min(4, len(os.sched_getaffinity(0))))
