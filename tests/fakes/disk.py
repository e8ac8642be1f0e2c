"""A disk that does not sync, and may die at any operation.

It dies before the operation, halfway through it, or after it.
"""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from toolkit.datasets.filesystem import Disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WHEN = ("before", "halfway", "after")


class Killed(BaseException):
    """kill -9 within one process: from here on nothing reaches the disk."""


class QuickDisk(Disk):
    """A disk that renames and writes as the real one, without syncing.

    It does not model the losses of a power cut.
    """

    def write_file(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(f".{path.name}.{threading.get_ident()}.tmp")
        temporary.write_bytes(content)
        temporary.replace(path)

    def rename(self, path: Path, target: Path) -> None:
        path.rename(target)

    def sync(self, folder: Path) -> None:
        folder.stat()


class MortalDisk(QuickDisk):
    """A disk that counts its operations and dies at number `fatal`.

    There it calls `die`, and again at each later operation.
    """

    def __init__(
        self, fatal: int = -1, when: str = "before", die: Callable[[], None] | None = None
    ) -> None:
        self.fatal, self.when, self.count, self.dead = fatal, when, 0, False
        self._die = die or _raise
        self._lock = threading.Lock()

    def make_folder(self, path: Path, *, within: Path | None = None) -> None:
        if not path.is_dir():
            self._do(lambda: Disk.make_folder(Disk(), path, within=within))

    def create(self, path: Path, *, mode: int = 0o444) -> int:
        made: list[int] = []
        self._do(lambda: made.append(super(MortalDisk, self).create(path, mode=mode)))
        return made[0]

    def write(self, descriptor, content, offset) -> None:
        view = memoryview(content)
        self._do(
            lambda: super(MortalDisk, self).write(descriptor, view, offset),
            lambda: super(MortalDisk, self).write(descriptor, view[: len(view) // 2], offset),
        )

    def resize(self, descriptor: int, size: int) -> None:
        self._do(lambda: super(MortalDisk, self).resize(descriptor, size))

    def protect(self, path: Path) -> None:
        self._do(lambda: super(MortalDisk, self).protect(path))

    def unprotect(self, path: Path) -> None:
        self._do(lambda: super(MortalDisk, self).unprotect(path))

    def touch(self, path: Path) -> None:
        self._do(lambda: super(MortalDisk, self).touch(path))

    def write_file(self, path: Path, content: bytes) -> None:
        def half() -> None:
            path.with_name(f".{path.name}.dead.tmp").write_bytes(content[: len(content) // 2])

        self._do(lambda: super(MortalDisk, self).write_file(path, content), half)

    def link(self, path: Path, name: Path) -> None:
        self._do(lambda: super(MortalDisk, self).link(path, name))

    def rename(self, path: Path, target: Path) -> None:
        self._do(lambda: super(MortalDisk, self).rename(path, target))

    def sync(self, folder: Path) -> None:
        self._do(lambda: super(MortalDisk, self).sync(folder))

    def remove(self, path: Path) -> None:
        self._do(lambda: super(MortalDisk, self).remove(path))

    def remove_tree(self, path: Path) -> None:
        def half() -> None:
            files = sorted(one for one in path.rglob("*") if one.is_file())
            for one in files[: (len(files) + 1) // 2]:
                one.unlink()

        self._do(lambda: super(MortalDisk, self).remove_tree(path), half)

    def _do(self, work: Callable[[], object], half: Callable[[], object] | None = None) -> None:
        with self._lock:
            number, self.count = self.count, self.count + 1
            if self.dead:
                self._die()
            if number != self.fatal:
                work()
                return
            self.dead = True
            if self.when == "after":
                work()
            elif self.when == "halfway" and half:
                with suppress(OSError):
                    half()
            self._die()


class FullDisk(QuickDisk):
    """A disk that takes so many bytes of content and no more."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, descriptor, content, offset) -> None:
        if len(content) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(content)
        super().write(descriptor, content, offset)


def _raise() -> None:
    raise Killed
