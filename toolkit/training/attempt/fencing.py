"""Fence an attempt off from its run's folder once another attempt takes over.

The batch script (jobscripts/lib/owner.sh) gives each attempt a folder of its own, its fence. An
attempt that takes over the run deletes the older fence before anything else. The older attempt may
still run on an instance that Slurm has given up. Without its fence it can neither commit nor delete
a checkpoint.

That holds even for a call that a dead network delayed. Such a call renames a file out of the fence,
or a checkpoint into it, and the fence is gone by then. The attempts file is written in the same
way.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from toolkit.training.errors import Superseded
from toolkit.training.io.durable_files import read_twice, write_atomic

_ABSENT_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


@dataclass(frozen=True, slots=True)
class Fence:
    """The right of one attempt to write to its run folder."""

    folder: Path | None = None
    """The fence, a folder of the attempt. None: no attempt has claimed the run, and all is allowed.
    """

    def is_superseded(self) -> bool:
        """Return whether another attempt has taken over.

        Raises OSError when two tries could not find out.
        """
        if self.folder is None:
            return False
        try:
            # utime is a change: it asks the file server and not the client's cache.
            read_twice(self.folder, os.utime)
        except OSError as error:
            if error.errno in _ABSENT_ERRNOS:
                return True
            raise
        return False

    def may_be_superseded(self) -> bool:
        """Return whether another attempt has taken over, or may have.

        True also when the file server does not answer.
        """
        try:
            return self.is_superseded()
        except OSError:
            return True

    def check(self) -> None:
        """Raise Superseded when another attempt has taken over."""
        if self.is_superseded():
            raise Superseded(
                "another attempt has taken over this run, so this attempt saves nothing more"
                f" (its fence {self.folder} is deleted)"
            )

    def write_fenced(self, path: Path, content: bytes) -> None:
        """Write a file by a rename that fails without the fence.

        Raises Superseded then. When `path` is on another filesystem than the fence (checkpoints/ is
        a link), the rename is impossible. The owner is checked instead, just before the write.
        """
        try:
            write_atomic(path, content, temporary_folder=self.folder)
        except OSError as error:
            self.check()
            if error.errno != errno.EXDEV:
                raise
            write_atomic(path, content)

    def move_to_trash(self, folder: Path) -> Path:
        """Move a file or folder into the fence, to be deleted.

        Returns its path there. Raises Superseded when another attempt has taken over.

        The move is one rename: after a crash the folder is whole in its old place, or gone from
        there. The rest of it is deleted with the fence. When `folder` is on another filesystem, the
        owner is checked instead. Then `folder` is returned and must be deleted where it is. It is
        also returned when there is no fence.
        """
        if self.folder is None:
            return folder
        try:
            return folder.replace(self.folder / folder.name)
        except OSError as error:
            self.check()
            if error.errno != errno.EXDEV:
                raise
            return folder


UNCLAIMED = Fence()
