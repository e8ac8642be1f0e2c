"""A disk that ends the process, fills up or tears a write at any one of its operations."""

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
    (Path, "open"),  # which goes to no function of os
]
# With those that change nothing, or only a time: where a machine dies between them tells nothing.
CALLS = [*OPERATIONS, *((os, name) for name in ("listdir", "open", "preadv", "stat", "utime"))]


class Killed(BaseException):
    """The process ends here, but for what it has to do on its way out."""


def kill(_call, _args):
    raise Killed


def vanish(_call, _args):
    """No word, no `finally`, no other thread: a machine that is gone, with its page cache kept."""
    os.kill(os.getpid(), signal.SIGKILL)


def tear(call, args):
    """Half of a write arrives, and the process ends."""
    if isinstance(args[0], int) and len(args) == 3:  # pwrite
        descriptor, view, offset = args
        call(descriptor, view[: len(view) // 2], offset)
    raise Killed


def fill(_call, _args):
    raise OSError(28, "No space left on device")


def fail(*_):
    raise OSError(5, "Input/output error")


def limit(size: int) -> None:
    """From here on no file of this process grows beyond `size` bytes; negative: as it likes.

    What a disk that fills up does to a write: as much of it arrives as there is room for.
    """
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if size < 0 else size, most))


def swallow_errors(patch: pytest.MonkeyPatch) -> None:
    """Have pathlib take every error for a no, as it does from Python 3.14."""
    new = {"exists": os.path.exists, "is_file": os.path.isfile, "is_dir": os.path.isdir}
    for name, asked in new.items():
        patch.setattr(Path, name, lambda path, ask=asked, **_: ask(path))


@contextmanager
def strike(
    number: int, fault: Callable[..., Any], operations: Sequence[tuple[Any, str]] = OPERATIONS
) -> Iterator[list[int]]:
    """`fault` in place of the `number`th operation; yields how many were met, as a list."""
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
    """Do the work in a copy of this process that SIGKILL ends at its `number`th operation.

    False: it had fewer, and did all of the work.
    """
    child = os.fork()
    if not child:
        code = 1
        try:
            block_reader.thread_pool.cache_clear()  # they did not come along
            with strike(number, vanish):
                work()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, -signal.SIGKILL}, f"exit code {code}"
    return code != 0


class Power:
    """What of `root` is on the disk: files and the names in a folder as they were last synced.

    In the context `os.fsync` is noted and not done. What is there as it begins is on the disk.
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
        """Leave of `root` what is on the disk."""
        top = self._root.stat().st_ino
        shutil.rmtree(self._root)
        self._restore(self._root, top)

    def keeps(self, path: Path) -> bool:
        """Tell whether a cut would leave `path` its name and its bytes."""
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
