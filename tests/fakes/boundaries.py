"""Every call that leaves the engine, as a place where the process may die.

A `Watched` object stands before a port, the journal or the unavailable offerings. It steps twice a
call: before it has any effect, and after its effect but before the caller learns of it. At a step,
the test chooses: count, raise Killed, or kill -9 the process. The object's methods are all watched,
so a new one is covered the day it is written.
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
    """Lets so many steps pass and then kills; what is dead stays dead.

    A thread that outlives the fatal step, or a clean-up on the way out, gets no further than its
    own next step: kill -9 leaves no one to tidy up.
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
    """The same engine, every way out of it watched."""
    parts: dict[str, Any] = {name: Watched(getattr(engine, name), name, step) for name in PARTS}
    return dataclasses.replace(engine, **parts)
