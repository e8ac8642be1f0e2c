"""Read blocks ahead and hash them in threads, outside the GIL."""

import functools
import mmap
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

_BLOCKS_KEPT = 4  # number of blocks that are kept beside those read ahead

Read = Callable[[int, memoryview], None]


class BlockWindow:
    """A window on the blocks of one file, which other threads read. A few blocks are kept.

    torch reads a tensor's end first, then its beginning and from there on. It comes back to the
    lowest block last. `read` puts a block into memory, and raises an error for a block that can't
    be trusted.
    """

    def __init__(self, read: Read, count: int, size: int) -> None:
        self._read, self._count, self._size = read, count, size
        self._blocks: dict[int, tuple[Future[None], memoryview]] = {}
        self._free_buffers: list[memoryview] = []

    def get(self, number: int, *, ahead: bool) -> memoryview:
        """Return a block, valid until the next call.

        `ahead` means that the next blocks are wanted soon.
        """
        last = min(number + thread_count(), self._count - 1) if ahead else number
        missing_numbers = [other for other in range(number, last + 1) if other not in self._blocks]
        self._evict_blocks(len(missing_numbers), number, last)
        for other in missing_numbers:
            # Memory is used again: to have the kernel zero new memory costs a third of a hash.
            free = self._free_buffers
            buffer = free.pop() if free else memoryview(mmap.mmap(-1, self._size))
            self._blocks[other] = thread_pool().submit(self._read, other, buffer), buffer
        future, buffer = self._blocks[number]
        future.result()
        return buffer

    def fill(self, first: int, target: memoryview) -> int:
        """Read whole blocks straight into `target`.

        Returns their number.
        """
        count = len(target) // self._size
        futures = []
        try:
            for index in range(count):
                buffer = target[index * self._size : (index + 1) * self._size]
                if first + index in self._blocks:
                    buffer[:] = self.get(first + index, ahead=False)
                else:
                    futures.append(thread_pool().submit(self._read, first + index, buffer))
        finally:
            wait(futures)  # `target` is the caller's, which may free it when this raises
        for future in futures:
            future.result()
        return count

    def close(self) -> None:
        """Wait until no thread reads any more."""
        wait([work for work, _ in self._blocks.values()])

    def _evict_blocks(self, count: int, first: int, last: int) -> None:
        while len(self._blocks) + count > thread_count() + _BLOCKS_KEPT:
            evictable = [number for number in self._blocks if not first <= number <= last]
            future, buffer = self._blocks.pop(
                min(evictable) if min(evictable) < first else max(evictable)
            )
            wait([future])
            self._free_buffers.append(buffer)


@functools.cache
def thread_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_count(), thread_name_prefix="blocks")


@functools.cache
def thread_count() -> int:
    """Return how many blocks are worked on at a time.

    It is small: a rank shares its instance with other ranks, and with the training.
    """
    return max(2, min(4, len(os.sched_getaffinity(0))))
