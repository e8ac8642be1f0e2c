"""A log file that is read while it grows, also over its rotation."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

from slurmplugins.logs.line_time import time_of
from slurmplugins.logs.source import MOST_LINE
from slurmplugins.model.log_line import LogLine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurmplugins.system.clock import Clock


class LogFile:
    """A `Source` of one file. A file that is not there yet has no lines.

    At its rotation the file becomes PATH.1 (`system.logger`). The rest of it is read there first.
    """

    def __init__(self, path: Path, unit: str, clock: Clock, position: str = "") -> None:
        self._path = path
        self._unit = unit
        self._clock = clock
        self.has_more = False
        self._inode, self._offset = _parse(position)
        self._next = (self._inode, self._offset)

    @property
    def key(self) -> str:
        return str(self._path)

    @property
    def position(self) -> str:
        return f"{self._inode}:{self._offset}"

    def read(self, most_bytes: int, *, last: bool = False) -> tuple[LogLine, ...]:
        self._next, self.has_more = (self._inode, self._offset), False
        for path in (self._path.with_name(f"{self._path.name}.1"), self._path):
            with contextlib.suppress(OSError), _opened(path) as file:
                is_rotated = path != self._path
                status = os.fstat(file.fileno())
                if is_rotated and status.st_ino != self._inode:
                    continue
                is_same = status.st_ino == self._inode and self._offset <= status.st_size
                offset = self._offset if is_same else 0
                file.seek(offset)
                content = file.read(most_bytes)
                self.has_more = len(content) == most_bytes
                if self.has_more or not (last or is_rotated):
                    content = _whole_lines(content, is_full=self.has_more)
                if is_rotated and not content:
                    continue
                self._next = (status.st_ino, offset + len(content))
                return self._lines(content)
        return ()

    def accept(self) -> None:
        self._inode, self._offset = self._next

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _lines(self, content: bytes) -> tuple[LogLine, ...]:
        now = self._clock.now()
        texts = content.decode("utf-8", errors="replace").split("\n")
        return tuple(
            LogLine(time_of(text, now), self._unit, text[:MOST_LINE])
            for text in texts
            if text.strip()
        )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file and nothing else.

    Its folder may belong to another user.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileNotFoundError(str(path))
        yield file


def _whole_lines(content: bytes, *, is_full: bool) -> bytes:
    """Return the content up to its last newline.

    All of it if a single line fills the read.
    """
    end = content.rfind(b"\n") + 1
    return content if is_full and end == 0 else content[:end]


def _parse(position: str) -> tuple[int, int]:
    inode, _, offset = position.partition(":")
    return (int(inode), int(offset)) if inode.isdecimal() and offset.isdecimal() else (0, 0)
