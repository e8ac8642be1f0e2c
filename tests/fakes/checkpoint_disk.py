"""Faults for the disk of checkpoints, at any one operation.

A fault kills the process, fills up the disk or tears a write.
"""

import os
import resource
import shutil
import signal
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from toolkit.training.checkpoint import block_reader

OPERATIONS = [
    *((os, name) for name in ("fsync", "link", "mkdir", "pwrite", "replace", "rmdir", "unlink")),
    (Path, "open"),  # it calls io.open, and no function of os
]
# Adds calls that change nothing, or only a time: a death between them tests nothing new.
CALLS = [*OPERATIONS, *((os, name) for name in ("listdir", "open", "preadv", "stat", "utime"))]


class Killed(BaseException):
    """An exception that ends the process; only its clean-up still runs."""


def kill(_call, _args):
    raise Killed


def vanish(_call, _args):
    """Kill this process with SIGKILL: no output, no `finally`, no other thread.

    The page cache stays.
    """
    os.kill(os.getpid(), signal.SIGKILL)


def tear(call, args):
    """Write half of the content, then end the process."""
    if isinstance(args[0], int) and len(args) == 3:  # pwrite
        descriptor, view, offset = args
        call(descriptor, view[: len(view) // 2], offset)
    raise Killed


def fill(_call, _args):
    raise OSError(28, "No space left on device")


def fail(*_):
    raise OSError(5, "Input/output error")


def limit(size: int) -> None:
    """Let no file of this process grow beyond `size` bytes.

    A negative `size` lifts the limit. A disk that fills up does the same to a write: as much
    arrives as there is space for.
    """
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if size < 0 else size, most))


def swallow_errors(patch: pytest.MonkeyPatch) -> None:
    """Let pathlib's tests of a path return False on every error.

    Python 3.14 does so by itself.
    """
    new = {"exists": os.path.exists, "is_file": os.path.isfile, "is_dir": os.path.isdir}
    for name, asked in new.items():
        patch.setattr(Path, name, lambda path, ask=asked, **_: ask(path))


@contextmanager
def strike(
    number: int, fault: Callable[..., Any], operations: Sequence[tuple[Any, str]] = OPERATIONS
) -> Iterator[list[int]]:
    """Run `fault` in place of the `number`th operation.

    Yields a list with one element for each operation so far.
    """
    met = []

    def guard(original):
        def call(*args, **kwargs):
            met.append(1)
            if len(met) == number:
                return fault(partial(original, **kwargs), args)
            return original(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in operations:
            patch.setattr(owner, name, guard(getattr(owner, name)))
        yield met


def killed(number: int, work: Callable[[], Any]) -> bool:
    """Do the work in a forked process, killed at operation `number`.

    SIGKILL ends the process there. Returns False if the work had fewer operations, so that all of
    it was done.
    """
    child = os.fork()
    if not child:
        code = 1
        try:
            block_reader.thread_pool.cache_clear()  # A fork copies no threads.
            with strike(number, vanish):
                work()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, -signal.SIGKILL}, f"exit code {code}"
    return code != 0


class Power:
    """The part of `root` that would survive a power cut.

    It has the files, and the names in each folder, as of their last fsync. In the context
    `os.fsync` is recorded and not done. Everything in `root` at the start of the context counts as
    synced.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[int, bytes] = {}  # by inode
        self._names: dict[int, dict[str, int]] = {}

    def __enter__(self) -> Self:
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(os, "fsync", self._sync)
        for path in (self._root.parent, self._root, *self._root.rglob("*")):
            descriptor = os.open(path, os.O_RDONLY)
            self._sync(descriptor)
            os.close(descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def cut(self) -> None:
        """Reduce `root` to the content that was synced."""
        top = self._root.stat().st_ino
        shutil.rmtree(self._root)
        self._restore(self._root, top)

    def keeps(self, path: Path) -> bool:
        """Tell whether `path` keeps its name and bytes after a cut."""
        inode = path.stat().st_ino
        if self._names.get(path.parent.stat().st_ino, {}).get(path.name) != inode:
            return False
        return inode in self._names or self._files.get(inode) == path.read_bytes()

    def _sync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(descriptor) as entries:
                self._names[found.st_ino] = {each.name: each.inode() for each in entries}
        else:
            self._files[found.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def _restore(self, path: Path, inode: int) -> None:
        if inode not in self._names:
            path.write_bytes(self._files.get(inode, b""))
            return
        path.mkdir()
        for name, child in self._names[inode].items():
            self._restore(path / name, child)
