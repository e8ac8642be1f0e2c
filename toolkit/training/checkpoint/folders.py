"""List the folders of a run's checkpoints, tell which can be trusted, and delete old ones."""

import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

from toolkit.training.attempt.fencing import Owner, Superseded
from toolkit.training.checkpoint import manifest
from toolkit.training.io.durable_files import inside
from toolkit.training.run_folder import checkpoint_names
from toolkit.training.run_folder.checkpoint_names import NAME, number


class Folders:
    """The checkpoint folders under `root`, as one rank sees them.

    Only the run's `owner` makes and deletes any.
    """

    def __init__(self, root: Path, keep: int, owner: Owner) -> None:
        self.root, self._keep, self._owner = root, keep, owner
        # Folders that are damaged, or may be and are of no use any more.
        self.distrusted: set[str] = set()
        # Folders that could not be read back, and may be good.
        self._doubted: set[str] = set()

    def every(self) -> list[Path]:
        """Return every folder that a save has begun, newest first."""
        found = [path for path in inside(self.root) if NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: (number(path.name), path.name), reverse=True)

    def committed(self) -> list[Path]:
        """Return the folders that are checkpoints, the last one saved first."""
        return [folder for folder in self.every() if checkpoint_names.is_committed(folder)]

    def new(self, step: int, last: int) -> str:
        """Make a new folder, and return its name.

        `last` is the highest number that another place has.
        """
        self._owner.check()
        last = max((last, *(number(folder.name) for folder in self.every())))
        folder = self.root / f"step-{step:08d}.{last + 1:06d}"
        folder.mkdir(parents=True)
        return folder.name

    def confirmed(self) -> None:
        """Note that the newest folder was read back whole."""
        self.distrusted |= self._doubted  # a newer one is good, so these are of no use
        self._doubted.clear()

    def doubt(self, name: str) -> None:
        """Note that this folder could not be read, and may be good."""
        self._doubted.add(name)

    def prune(self) -> None:
        """Delete all but the newest confirmed folders, and as many doubted ones.

        A folder that can't be deleted costs space; it must not cost the run.
        """
        with suppress(OSError):
            trusted = [folder for folder in self.committed() if folder.name not in self.distrusted]
            doubted = [folder for folder in trusted if folder.name in self._doubted]
            sure = [folder for folder in trusted if folder not in doubted]
            for folder in self.every():
                if folder not in (*sure[: self._keep], *doubted[: self._keep]):
                    self._remove(folder)

    def abandon(self, folder: Path) -> None:
        """Delete a folder that will not be committed any more.

        A full disk needs the space back.
        """
        with suppress(OSError, Superseded):
            if not checkpoint_names.is_committed(folder):
                self._remove(folder)

    def _remove(self, folder: Path) -> None:
        with suppress(OSError):
            taken = self._owner.take(folder)
            manifest.remove(taken, rmtree=partial(shutil.rmtree, ignore_errors=True))
