"""A mapping whose values are made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

DAMAGES: Final = (ValueError, KeyError, TypeError, AttributeError)
"""The errors of raw values that are not as they were written."""
K = TypeVar("K")
V = TypeVar("V")


class LazyMapping(Mapping[K, V]):
    """The values of a file's raw entries; each is made once.

    A store of ten years names thousands of days, and a report reads a few of them. Asking for a
    damaged entry raises the error that `damaged` returns.
    """

    def __init__(
        self, raw: Mapping[K, Any], make: Callable[[Any], V], damaged: Callable[[], Exception]
    ) -> None:
        self._raw, self._make, self._damaged = raw, make, damaged
        self._made: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        if key not in self._made:
            entry = self._raw[key]
            try:
                self._made[key] = self._make(entry)
            except DAMAGES as error:
                raise self._damaged() from error
        return self._made[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __contains__(self, key: object) -> bool:
        return key in self._raw
