"""Work in a thread of its own, and its outcome where it is waited for."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from toolkit.training.distributed.process_group import World

T = TypeVar("T")


class LeftBehind(Exception):  # noqa: N818  # says what happened
    """A stop came before the work was done, and does not wait for it."""


class Flight(Generic[T]):
    """Begun when it is made; `land` gives the result, or raises what the work raised."""

    def __init__(self, work: Callable[[], T], ended: Callable[[], object] = lambda: None) -> None:
        self._work, self._ended = work, ended
        self._result: T | None = None
        self._error: BaseException | None = None
        # Daemon: a process that has to go does not wait for a rank that is gone already.
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    def is_over(self) -> bool:
        """Whether `land` waits for nothing."""
        return not self._thread.is_alive()

    def land(self) -> T:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # the thread ended in one of two ways

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            self._error = error
        finally:
            self._ended()


class Hurry:
    """Whether the machine goes, as one rank knows it: from the beginning, or once `come` tells it,
    which another thread looks at.

    What may take long and nobody waits for goes through `unless`, one at a time. It must be this
    rank's work alone: left behind in a collective, it would leave the other ranks waiting.
    """

    def __init__(self, *, has_come: bool = False) -> None:
        self._come = threading.Event()
        self._wake = threading.Event()
        if has_come:
            self.come()

    def come(self) -> None:
        self._come.set()
        self._wake.set()

    def has_come(self) -> bool:
        return self._come.is_set()

    def agreed(self, world: World) -> bool:
        """Whether any rank knows it. Collective."""
        return any(world.gather(self.has_come()))

    def unless(self, work: Callable[[], T]) -> T:
        """Do it; or raise LeftBehind as soon as there is a hurry, whatever the work waits for."""
        wake = self._wake = threading.Event()
        if self.has_come():  # asked after `_wake` is ours: `come` sets them in the other order
            raise LeftBehind("a stop came first")
        flight = Flight(work, ended=wake.set)
        wake.wait()
        if self.has_come():
            raise LeftBehind("a stop came first")
        return flight.land()
