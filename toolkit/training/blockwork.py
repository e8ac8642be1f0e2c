"""Threads and memory for work on blocks: hashing and reading ahead, outside the GIL."""

import functools
import mmap
import os
from concurrent.futures import ThreadPoolExecutor


class Buffers:
    """Memory of one size, used again: having the kernel zero new memory costs a third of a hash."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._spare: list[memoryview] = []

    def take(self) -> memoryview:
        # A map's pages come as they are touched: a small file costs no whole block.
        return self._spare.pop() if self._spare else memoryview(mmap.mmap(-1, self._size))

    def give(self, buffer: memoryview) -> None:
        """`take` may hand it out again: nobody may look at it any more."""
        self._spare.append(buffer)


@functools.cache
def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(lanes(), thread_name_prefix="blocks")


@functools.cache
def lanes() -> int:
    """Blocks worked on at a time: a rank shares its machine with others, and with the training."""
    return max(2, min(4, len(os.sched_getaffinity(0))))
