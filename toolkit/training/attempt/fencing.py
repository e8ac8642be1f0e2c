"""Whether the run's folder is still this attempt's, and the steps that only its owner can make.

The batch script (jobscripts/lib/owner.sh) gave the attempt a folder. Who takes the run over deletes
it before anything else. So an attempt that still runs on a machine which Slurm has given up commits
and deletes no checkpoint any more: not even in a call that a dead network held up, for the folder
that the file would be renamed out of, or a checkpoint into, is gone by then. The attempt ledger is
written in the same way.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from toolkit.training.io.durable_files import read_twice, write_atomic

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class Superseded(Exception):  # noqa: N818  # says what happened
    """Another attempt has taken over the run: this one must leave everything as it is."""


@dataclass(frozen=True, slots=True)
class Owner:
    """`place` is the attempt's folder. Without one nobody has claimed the run: all is allowed."""

    place: Path | None = None

    def lost(self) -> bool:
        """Whether another attempt has taken over. OSError where it can't be told, asked twice."""
        if self.place is None:
            return False
        try:
            # A change: the file server is asked, not what is remembered of it.
            read_twice(self.place, os.utime)
        except OSError as error:
            if error.errno in _GONE:
                return True
            raise
        return False

    def may_be_lost(self) -> bool:
        """`lost`, and so it counts where that can't be found out."""
        try:
            return self.lost()
        except OSError:
            return True

    def check(self) -> None:
        """Raise Superseded when another attempt has taken over."""
        if self.lost():
            raise Superseded(
                "another attempt has taken over this run: nothing more is saved here, and what was"
                f" saved is the other's ({self.place} is gone)"
            )

    def put(self, path: Path, content: bytes) -> None:
        """`write_atomic`, in a step that fails with Superseded for who is not the owner.

        Where `path` is on another filesystem (checkpoints/ is a link), a look before must do.
        """
        try:
            write_atomic(path, content, by_way_of=self.place)
        except OSError as error:
            self.check()
            if error.errno != errno.EXDEV:
                raise
            write_atomic(path, content)

    def take(self, folder: Path) -> Path:
        """A folder of the run, or a file, to delete, out of everybody's sight, in such a step.

        Stopped at any point it is whole where it was, or gone from there; what is left of it goes
        with the place. On another filesystem than that a look before must do, as for `put`, and it
        is to be deleted where it is.
        """
        if self.place is None:
            return folder
        try:
            return folder.replace(self.place / folder.name)
        except OSError as error:
            self.check()
            if error.errno != errno.EXDEV:
                raise
            return folder


UNCLAIMED = Owner()
