"""A mapping whose values are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LazyMapping(Mapping[K, V]):
    """The values of a file's raw entries; each is made once.

    A store of ten years names thousands of days, and a report reads a few of them.
    """

    def __init__(self, raw: Mapping[K, object], make: Callable[[object], V]) -> None:
        self._raw, self._make = raw, make
        self._made: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        if key not in self._made:
            self._made[key] = self._make(self._raw[key])
        return self._made[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __contains__(self, key: object) -> bool:
        return key in self._raw
