"""Work in a thread of its own, and its outcome where it is waited for."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Flight(Generic[T]):
    """Begun when it is made; `land` gives the result, or raises what the work raised."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._result: T | None = None
        self._error: BaseException | None = None
        # Daemon: a process that has to go does not wait for a rank that is gone already.
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

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
