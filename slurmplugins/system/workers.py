"""A pool of worker threads. A pool of one works in order, in the caller's thread."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    Errand = Callable[[], None]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Crew:
    """A pool of `workers` threads."""

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers

    def map(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """Do the work for all items; return the results in their order.

        Raises the error of the first item that failed; later items may be left undone.
        """
        todo = list(items)
        if self._workers <= 1 or len(todo) <= 1:
            return [work(item) for item in todo]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(self._workers, len(todo))) as pool:
            return list(pool.map(work, todo))

    @contextlib.contextmanager
    def aside(self, *, urgent: bool) -> Iterator[Callable[[Errand], None]]:
        """Yield a function that queues callables for one background thread.

        Any thread may call it. The callables run in order; leaving the block waits for all of them
        and raises the first error. With a single worker, urgent callables run immediately, and
        others when the block ends.
        """
        if self._workers <= 1:
            later: list[Errand] = []
            try:
                yield (lambda errand: errand()) if urgent else later.append
            finally:
                for errand in later:
                    errand()
            return
        from concurrent.futures import ThreadPoolExecutor

        begun: list[Future[None]] = []
        with ThreadPoolExecutor(1) as one:
            yield lambda errand: begun.append(one.submit(errand))
        for done in begun:
            done.result()
