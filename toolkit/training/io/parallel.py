"""Spread work over threads. The first failure ends them all."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")
_END = object()

BUFFER = 256 << 10  # bytes; stays in a core's cache between read, hash and write
STORE_WORKERS = 8  # a network filesystem answers late: most threads wait for it
TICK_SECONDS = 0.2


def local_workers() -> int:
    """Return the number of threads for copies between filesystems.

    More of them than cores hinder each other.
    """
    return min(8, len(os.sched_getaffinity(0)))


def run(
    tasks: Iterator[T],
    work: Callable[[T, memoryview], None],
    *,
    workers: int,
    tick: Callable[[], object] = lambda: None,
) -> None:
    """Call `work(task, buffer)` for every task on `workers` threads.

    Raises the first failure after the other threads have ended their tasks. The waiting thread
    calls `tick` several times a second; its error is a failure too. Tasks are taken when they are
    needed: there may be millions.
    """
    tick()
    pool = _WorkerPool(tasks, work)
    # Daemons: a process that exits does not wait for them.
    threads = [threading.Thread(target=pool.run_tasks, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(TICK_SECONDS)
                with pool.recording_failure():
                    tick()
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
        while not self.stop_event.is_set():
            with self.recording_failure():
                with self._lock:
                    task = next(self._tasks, _END)
                if task is _END:
                    return
                self._work(task, buffer)  # type: ignore[arg-type]  # not the end, so a task

    @contextmanager
    def recording_failure(self) -> Iterator[None]:
        """Record a block's error and stop all threads.

        The waiting thread raises the error.
        """
        try:
            yield
        except BaseException as error:  # noqa: BLE001
            with self._lock:
                self.failure = self.failure or error
            self.stop_event.set()
