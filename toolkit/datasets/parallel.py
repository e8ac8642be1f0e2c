"""Work spread over threads; the waiting thread reports progress and stops the others."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from toolkit.datasets.chunks import BUFFER
from toolkit.datasets.errors import DataStopped

T = TypeVar("T")
_END = object()

_STOPPED_MESSAGE = "a stop was asked for; what is done so far is kept"

TICK_SECONDS = 0.2
STORE_WORKERS = 8  # a network filesystem answers late: most threads wait for it
QUIET_SECONDS = 2.0  # shorter work reports no progress


def local_workers() -> int:
    """Return the number of threads for copies between filesystems.

    More of them than cores hinder each other.
    """
    return min(8, len(os.sched_getaffinity(0)))


def never_stop() -> bool:
    """Return False: the stop request that never comes."""
    return False


class Progress:
    """Counts bytes and files from any thread; reports progress once the work takes long."""

    def __init__(
        self,
        title: str = "",
        *,
        files: int = 0,
        size: int = 0,
        log: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._files, self._size = title, files, size
        self._log, self._clock = log or _to_stderr, clock
        self._lock = threading.Lock()
        self._started_at = self._reported_at = clock()
        self.done_files = self.done_bytes = 0

    def add(self, size: int, *, files: int = 0) -> None:
        with self._lock:
            self.done_bytes += size
            self.done_files += files

    def report_if_due(self) -> None:
        """Report progress, every two seconds at most, never in the first two."""
        now = self._clock()
        if self._title and now - self._reported_at >= QUIET_SECONDS:
            self._reported_at = now
            rate = self.done_bytes / (now - self._started_at) / 1e6
            self._log(
                f"{self._title}: {self.done_files}/{self._files} files,"
                f" {self.done_bytes / 1e6:,.0f} of {self._size / 1e6:,.0f} MB, {rate:,.0f} MB/s"
            )


def run(
    tasks: Iterator[T],
    work: Callable[[T, memoryview], None],
    *,
    workers: int,
    should_stop: Callable[[], bool] = never_stop,
    progress: Progress | None = None,
) -> None:
    """Call `work(task, buffer)` for every task on `workers` threads.

    Raises the first failure after the other threads have ended their tasks, and Stopped
    when `stop` returned True. Tasks are taken when they are needed: there may be
    millions.
    """
    if should_stop():
        raise DataStopped(_STOPPED_MESSAGE)
    pool = _WorkerPool(tasks, work)
    threads = [threading.Thread(target=pool.run_tasks, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(TICK_SECONDS)
                if progress:
                    progress.report_if_due()
                if should_stop():
                    pool.fail(DataStopped(_STOPPED_MESSAGE))
    finally:
        # Also when this thread is interrupted: no thread may work on after the caller's return.
        pool.stop_event.set()
        for thread in threads:
            thread.join()
    if pool.failure:
        raise pool.failure


class _WorkerPool(Generic[T]):
    """The state that the threads share: the remaining tasks and the first failure."""

    def __init__(self, tasks: Iterator[T], work: Callable[[T, memoryview], None]) -> None:
        self._tasks, self._work = tasks, work
        self._lock = threading.Lock()
        self.stop_event = threading.Event()
        self.failure: BaseException | None = None

    def run_tasks(self) -> None:
        buffer = memoryview(bytearray(BUFFER))
        try:
            while not self.stop_event.is_set():
                with self._lock:
                    task = next(self._tasks, _END)
                if task is _END:
                    return
                self._work(task, buffer)  # type: ignore[arg-type]  # not the end, so a task
        except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        with self._lock:
            self.failure = self.failure or error
        self.stop_event.set()


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"[toolkit] {text}\n")
    sys.stderr.flush()
