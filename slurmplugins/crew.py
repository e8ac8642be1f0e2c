"""How many things are done at once. One at a time is in order and in the caller's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
