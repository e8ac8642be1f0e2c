"""Run a save in a thread of its own, and return its result to the waiting caller."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from toolkit.training.distributed.process_group import ProcessGroup
from toolkit.training.errors import WorkAbandoned

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """Work that runs in a thread from now on.

    `result` waits for it, and returns its result or raises its error.
    """

    def __init__(self, work: Callable[[], T], on_end: Callable[[], object] = lambda: None) -> None:
        self._work, self._on_end = work, on_end
        self._result: T | None = None
        self._error: BaseException | None = None
        # Daemon: a process that must exit does not wait for a rank that is gone already.
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    def is_finished(self) -> bool:
        """Return whether `result` would return at once."""
        return not self._thread.is_alive()

    def result(self) -> T:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # the thread ended in one of two ways

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001  # raised by `result`
            self._error = error
        finally:
            self._on_end()


class Urgency:
    """A rank's knowledge that its instance goes.

    It is set from the beginning, or once another thread calls `set`.

    Long work that no other rank waits for goes through `run_unless_urgent`, one piece at a time. It
    must be this rank's work alone: an abandoned collective would leave the other ranks waiting.
    """

    def __init__(self, *, initially_set: bool = False) -> None:
        self._set_event = threading.Event()
        self._wake_event = threading.Event()
        if initially_set:
            self.set()

    def set(self) -> None:
        self._set_event.set()
        self._wake_event.set()

    def is_set(self) -> bool:
        return self._set_event.is_set()

    def is_set_anywhere(self, world: ProcessGroup) -> bool:
        """Return whether it is set on any rank. Collective."""
        return any(world.gather(self.is_set()))

    def run_unless_urgent(self, work: Callable[[], T]) -> T:
        """Do the work, unless it is urgent to stop.

        Raises WorkAbandoned as soon as it is set, whatever the work waits for.
        """
        wake_event = self._wake_event = threading.Event()
        # Tested after `_wake_event` is replaced, for `set` sets the two in the other order.
        if self.is_set():
            raise WorkAbandoned("the job must stop first")
        task = BackgroundTask(work, on_end=wake_event.set)
        wake_event.wait()
        if self.is_set():
            raise WorkAbandoned("the job must stop first")
        return task.result()
