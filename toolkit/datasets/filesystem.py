"""Filesystem changes that datasets make, each a method of `Disk`.

Tests replace `Disk` by one that fails, or ends the process, at the first change, the
second, …
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
    """The real filesystem."""

    def make_folder(self, path: Path, *, within: Path | None = None) -> None:
        """Make a folder and its missing parents.

        Folders made below `within` get the permissions of `within`.
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
        """Create a file for writing; return its descriptor.

        `mode` applies from the next time that the file is opened.
        """
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)

    def write(self, descriptor: int, content: Bytes, offset: int) -> None:
        """Write all of the content at an offset."""
        view = memoryview(content)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written

    def resize(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def protect(self, path: str | Path) -> None:
        """Make the file read-only against accidental writes."""
        Path(path).chmod(READ_ONLY)

    def unprotect(self, path: str | Path) -> None:
        """Make the file writable for its owner again."""
        Path(path).chmod(WRITABLE)

    def touch(self, path: Path) -> None:
        """Set the file's time to now."""
        os.utime(path)

    def write_file(self, path: Path, content: bytes) -> None:
        """Replace the file by one that is complete and on disk.

        A crash leaves the old content or the new, nothing between.
        """
        write_atomic(path, content)

    def link(self, path: Path, name: Path) -> None:
        """Give a file one more name. Raises FileExistsError if the name exists."""
        name.hardlink_to(path)

    def rename(self, path: Path, target: Path) -> None:
        """Move a file or folder, and sync both parent folders."""
        path.rename(target)
        fsync_directory(target.parent)
        if path.parent != target.parent:
            fsync_directory(path.parent)

    def sync(self, folder: Path) -> None:
        """Bring everything written to the folder's filesystem to disk.

        One call for the whole filesystem: an fsync for each of many small files takes
        minutes.
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
        """Delete a folder; may be repeated."""
        if path.exists():
            shutil.rmtree(path)
