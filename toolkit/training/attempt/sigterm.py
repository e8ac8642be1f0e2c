"""SIGTERM to a worker: another rank is gone, or the job is being cancelled or taken off its nodes.

By default the process would die where it stands, and the batch script would take its silence for a
failure. Here it leaves through `with Run`, which has a verdict to write. A main thread
that is stuck inside a collective leaves when that fails, or is killed by torchrun in the end.
"""

import os
import signal
import threading
from types import FrameType
from typing import Any


class Terminated(SystemExit):
    """Raised in the main thread by SIGTERM."""


class OnTerminate:
    """From `begin` to `end`, SIGTERM raises Terminated; from `shield` on it is ignored."""

    def __init__(self) -> None:
        self._earlier: Any = None
        self._owner = os.getpid()
        self._active = threading.current_thread() is threading.main_thread()

    def begin(self) -> None:
        if self._active:
            self._earlier = signal.signal(signal.SIGTERM, self._raise)

    def shield(self) -> None:
        """What is being written now is worth more than a prompt end."""
        if self._active:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def end(self) -> None:
        if self._active and self._earlier is not None:
            signal.signal(signal.SIGTERM, self._earlier)

    def _raise(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._owner:  # a data loader's process inherits the handler, not the run
            os._exit(128 + number)
        raise Terminated(128 + number)
