"""A pool of worker threads. A pool of one uses no thread but the caller's."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    Task = Callable[[], None]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class WorkerPool:
    """A pool of `workers` threads."""

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers

    def map(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """Do the work for all items; return the results in their order.

        Raises the error of the first item that failed; later items may be left undone.
        """
        pending_items = list(items)
        if self._workers <= 1 or len(pending_items) <= 1:
            return [work(item) for item in pending_items]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(self._workers, len(pending_items))) as pool:
            return list(pool.map(work, pending_items))

    @contextlib.contextmanager
    def background_queue(self, *, urgent: bool) -> Iterator[Callable[[Task], None]]:
        """Yield a function that queues callables for one background thread.

        Any thread may call it. The callables run in order; leaving the block waits for all of them
        and raises the first error. With a single worker, urgent callables run immediately, and
        others when the block ends.
        """
        if self._workers <= 1:
            queued_tasks: list[Task] = []
            try:
                yield (lambda task: task()) if urgent else queued_tasks.append
            finally:
                for task in queued_tasks:
                    task()
            return
        from concurrent.futures import ThreadPoolExecutor

        futures: list[Future[None]] = []
        with ThreadPoolExecutor(1) as thread:
            yield lambda task: futures.append(thread.submit(task))
        for future in futures:
            future.result()
