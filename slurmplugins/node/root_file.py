"""A file that root alone may write, applied each time it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.errors import BootError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from pathlib import Path


class RootFile:
    """A file on /shared that an instance follows, with what was applied of it."""

    def __init__(self, path: Path) -> None:
        """Follow the path; nothing is applied yet."""
        self._path = path
        self._applied_signature: tuple[int, int] | None = None

    def follow(self, apply: Callable[[str], object]) -> None:
        """Give the text to `apply` if the file has changed.

        An absent file changes nothing. If `apply` raises, the next call tries again. Raises
        BootError or OSError.
        """
        try:
            file_status = self._path.stat()
        except FileNotFoundError:
            return
        signature = (file_status.st_mtime_ns, file_status.st_size)
        if signature == self._applied_signature:
            return
        check_owner(self._path, file_status)
        apply(self._path.read_text(encoding="utf-8"))
        self._applied_signature = signature


def check_owner(path: Path, file_status: os.stat_result) -> None:
    """Raise BootError unless the file is root's alone."""
    if file_status.st_uid != 0 or file_status.st_mode & 0o022:
        raise BootError(f"{path} must be root's, and writable by root alone; it is not used")
