"""Turn SIGTERM to a worker into an exception.

A worker gets SIGTERM when another rank is gone, or when the job is cancelled or taken off its
nodes. By default the process would die at once, and the batch script would take its silence for a
failure. Here the process leaves through `with Run`, which writes a verdict.

A main thread that is stuck inside a collective leaves when the collective fails. Otherwise torchrun
kills it in the end.
"""

import os
import signal
import threading
from types import FrameType
from typing import Any


class Terminated(SystemExit):
    """The exception that SIGTERM raises in the main thread."""


class SigtermHandler:
    """A SIGTERM handler: from `install` to `restore`, SIGTERM raises Terminated.

    After `ignore_sigterm` it is ignored. In threads other than the main one it does nothing.
    """

    def __init__(self) -> None:
        self._previous_handler: Any = None
        self._pid = os.getpid()
        self._in_main_thread = threading.current_thread() is threading.main_thread()

    def install(self) -> None:
        if self._in_main_thread:
            self._previous_handler = signal.signal(signal.SIGTERM, self._raise_terminated)

    def ignore_sigterm(self) -> None:
        """Ignore SIGTERM from now on.

        The files being written now are worth more than a prompt exit.
        """
        if self._in_main_thread:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def restore(self) -> None:
        if self._in_main_thread and self._previous_handler is not None:
            signal.signal(signal.SIGTERM, self._previous_handler)

    def _raise_terminated(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._pid:  # a data loader's process inherits the handler, not the run
            os._exit(128 + number)
        raise Terminated(128 + number)
