"""Steps at which the process may die, around the engine's calls.

A `Watched` object stands before a port, the journal or the unavailable offerings. It steps twice a
call: before the call has any effect, and after its effect but before the caller learns of it. At a
step the test chooses: count, raise Killed, or kill -9 the process. All methods of the object are
watched, so a new method is covered the day it is written.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmplugins.execution.engine import Engine

PARTS = ("journal", "cloud", "slurm", "unavailable_offerings", "store")


class Killed(BaseException):
    """kill -9 without a process: nothing in the engine may catch it."""


class Watched:
    def __init__(self, inner: object, name: str, step: Callable[[str], None]) -> None:
        self._inner, self._name, self._step = inner, name, step

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name.startswith("_"):
            return found

        @functools.wraps(found)
        def watched(*args: Any, **more: Any) -> Any:
            self._step(f"{self._name}.{name}: about to")
            answer = found(*args, **more)
            self._step(f"{self._name}.{name}: done")
            return answer

        return watched


class Fuse:
    """A callable that lets so many steps pass and then raises Killed.

    Each later step raises Killed again. A thread that outlives the fatal step, or a clean-up, gets
    no further than its own next step. After a real kill -9, nothing tidies up either.
    """

    def __init__(self, steps: int) -> None:
        self._left = steps
        self.at = ""

    def __call__(self, place: str) -> None:
        if self._left <= 0:
            self.at = self.at or place
            raise Killed(place)
        self._left -= 1


def watch(engine: Engine, step: Callable[[str], None]) -> Engine:
    """Return the same engine with every call that leaves it watched."""
    parts: dict[str, Any] = {name: Watched(getattr(engine, name), name, step) for name in PARTS}
    return dataclasses.replace(engine, **parts)
