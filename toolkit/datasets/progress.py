"""Count the work of several threads, report it, and stop it when a stop is requested."""

import sys
import threading
import time
from collections.abc import Callable

from toolkit.datasets.errors import DataStopped

QUIET_SECONDS = 2.0  # shorter work reports no progress


def never_stop() -> bool:
    """Return False: the stop request that never comes."""
    return False


class Progress:
    """Counts bytes and files from any thread; reports progress once the work takes long."""

    def __init__(
        self,
        title: str = "",
        *,
        files: int = 0,
        size: int = 0,
        should_stop: Callable[[], bool] = never_stop,
        log: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._files, self._size = title, files, size
        self._should_stop, self._log, self._clock = should_stop, log or _to_stderr, clock
        self._lock = threading.Lock()
        self._started_at = self._reported_at = clock()
        self.done_files = self.done_bytes = 0

    def add(self, size: int, *, files: int = 0) -> None:
        with self._lock:
            self.done_bytes += size
            self.done_files += files

    def tick(self) -> None:
        """Report progress, every two seconds at most, never in the first two.

        Raises DataStopped when a stop is requested.
        """
        if self._should_stop():
            raise DataStopped("a stop was asked for; what is done so far is kept")
        now = self._clock()
        if self._title and now - self._reported_at >= QUIET_SECONDS:
            self._reported_at = now
            rate = self.done_bytes / (now - self._started_at) / 1e6
            self._log(
                f"{self._title}: {self.done_files}/{self._files} files,"
                f" {self.done_bytes / 1e6:,.0f} of {self._size / 1e6:,.0f} MB, {rate:,.0f} MB/s"
            )


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"[toolkit] {text}\n")
    sys.stderr.flush()
