"""How many things are done at once. One at a time is in order and in the caller's thread."""

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
    def __init__(self, workers: int = 1) -> None:
        self._workers = workers

    def map(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """The results in the order of the items, when all are done."""
        todo = list(items)
        if self._workers <= 1 or len(todo) <= 1:
            return [work(item) for item in todo]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(self._workers, len(todo))) as pool:
            return list(pool.map(work, todo))

    @contextlib.contextmanager
    def aside(self, *, urgent: bool) -> Iterator[Callable[[Errand], None]]:
        """What the yielded function is given, by any thread, is done beside the block's own work,
        one after another, and all of it when the block has ended. Where there is nobody to do it,
        it is done at once if `urgent`, and else at the end.
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
