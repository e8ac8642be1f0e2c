"""Atomic writes of files that other processes read, and locks that end with the process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_READ_ONLY: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def write_atomically(path: Path, content: bytes, *, mode: int) -> None:
    """Replace the content of `path` atomically, and sync it to disk.

    A reader sees the old or the new content. The new content never has a wider mode than `mode`.
    Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> bool:
    """Bring a public file to this text; return whether it changed.

    Raises OSError.
    """
    try:
        if path.read_text(encoding="utf-8") == text:
            return False
    except FileNotFoundError:
        pass
    write_atomically(path, text.encode(), mode=0o644)
    return True


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold an exclusive lock on `path` while the block runs.

    Yields False where `wait` is False and another process holds the lock, else True. The kernel
    releases the lock when the process ends, however it ends. Read permission is enough for an
    existing file. Raises OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        if error.errno not in _READ_ONLY or not path.exists():
            raise
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)
