"""Every change that datasets make to a filesystem, one method each.

Tests put a disk in its place that fails, or ends the process, at the first of them, the second, …
"""

import ctypes
import os
import shutil
import stat
from pathlib import Path

from toolkit.datasets.chunks import Bytes
from toolkit.training.io.durable_files import fsync_directory, write_atomic

READ_ONLY, WRITABLE = 0o444, 0o644


class Disk:
    """The real one."""

    def make_folder(self, path: Path, *, within: Path | None = None) -> None:
        """Make a folder and those above it, where they aren't there.

        Those that are made below `within` are as open to others as that is.
        """
        if path.is_dir():
            return
        if within is None or not path.is_relative_to(within) or path == within:
            path.mkdir(parents=True, exist_ok=True)
            return
        self.make_folder(path.parent, within=within)
        try:
            path.mkdir()
        except FileExistsError:
            return
        path.chmod(stat.S_IMODE(within.stat().st_mode))

    def create(self, path: str | Path, *, mode: int = READ_ONLY) -> int:
        """Open a new file for writing; the mode holds from the next time it is opened."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)

    def write(self, descriptor: int, content: Bytes, at: int) -> None:
        """Write all of it at a place in the file."""
        view = memoryview(content)
        while view:
            written = os.pwrite(descriptor, view, at)
            view, at = view[written:], at + written

    def resize(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def protect(self, path: str | Path) -> None:
        """Nobody writes to this file by accident any more."""
        Path(path).chmod(READ_ONLY)

    def unprotect(self, path: str | Path) -> None:
        """Its owner may write to it again."""
        Path(path).chmod(WRITABLE)

    def touch(self, path: Path) -> None:
        """Its time is now."""
        os.utime(path)

    def write_file(self, path: Path, content: bytes) -> None:
        """The old content or the new, whole and on disk."""
        write_atomic(path, content)

    def link(self, path: Path, name: Path) -> None:
        """Give a file one more name. Raises FileExistsError when the name is taken."""
        name.hardlink_to(path)

    def rename(self, path: Path, target: Path) -> None:
        """Move, and make both names durable."""
        path.rename(target)
        fsync_directory(target.parent)
        if path.parent != target.parent:
            fsync_directory(path.parent)

    def sync(self, folder: Path) -> None:
        """On return, all that was written to this folder's filesystem is on disk.

        One call for the filesystem: an fsync for each of many small files takes minutes.
        """
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            sync = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
            if sync is None:
                os.sync()
            elif sync(descriptor) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(folder))
        finally:
            os.close(descriptor)

    def remove(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Delete a folder; one that is gone is fine."""
        if path.exists():
            shutil.rmtree(path)
