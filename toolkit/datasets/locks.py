"""Locks that end with their process: flock on a file that is never deleted.

Shared while a dataset is in use, exclusive while it is filled or evicted. A child made
by fork holds its parent's locks; a program started by exec holds none.
"""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from toolkit.datasets.errors import DataStopped
from toolkit.datasets.progress import never_stop

POLL_SECONDS = 0.05


class Lock:
    """An open lock file. Closing it, or the end of the process, releases the lock."""

    def __init__(
        self, path: Path, *, sleep: Callable[[float], None] = time.sleep, all_users: bool = False
    ) -> None:
        """Open the lock file; with `all_users`, any user may lock it."""
        self.path, self._sleep = path, sleep
        self._descriptor: int | None = _open_for_all(path) if all_users else _open(path)

    def try_exclusive(self) -> bool:
        return self._try_lock(fcntl.LOCK_EX)

    def acquire_exclusive(self, should_stop: Callable[[], bool] = never_stop) -> bool:
        """Wait until no other process holds it; return whether it waited.

        Raises DataStopped.
        """
        return self._wait_for_lock(fcntl.LOCK_EX, should_stop)

    def acquire_shared(self, should_stop: Callable[[], bool] = never_stop) -> bool:
        """Wait until no other process holds it exclusively; return whether it waited.

        Also turns an exclusive lock into a shared one, but not atomically: look again
        at the protected folder afterwards. Raises DataStopped.
        """
        return self._wait_for_lock(fcntl.LOCK_SH, should_stop)

    def unlock(self) -> None:
        """Release the lock, and keep the file open to lock it again."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def mark_used(self) -> None:
        """Set the file's time to now: the dataset's last use."""
        if self._descriptor is not None:
            os.utime(self._descriptor)

    def is_at_its_path(self) -> bool:
        """Return whether the opened file is still the one at its path."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def _wait_for_lock(self, operation: int, should_stop: Callable[[], bool]) -> bool:
        # Polled, not blocked in the kernel: a stop request must end the wait.
        has_waited = False
        while not self._try_lock(operation):
            if should_stop():
                raise DataStopped(f"a stop was requested while waiting for lock {self.path.name}")
            has_waited = True
            self._sleep(POLL_SECONDS)
        return has_waited

    def _try_lock(self, operation: int) -> bool:
        if self._descriptor is None:
            raise ValueError("the lock is closed")
        try:
            fcntl.flock(self._descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _open_for_all(path: Path) -> int:
    """Open a lock file that all users may lock.

    In a sticky folder no user can open another user's file with O_CREAT
    (fs.protected_regular). Therefore an existing file is opened without it.
    """
    while True:
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            pass
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            continue
        os.fchmod(descriptor, 0o666)
        return descriptor
