"""The folders of a run's checkpoints: which there are, which can be trusted, and which go."""

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
    """Those under `root`, as one rank sees them. Only the run's `owner` makes and deletes any.

    `distrusted` are those that are not what was written, or may not be and are of no use any more.
    """

    def __init__(self, root: Path, keep: int, owner: Owner) -> None:
        self.root, self._keep, self._owner = root, keep, owner
        self.distrusted: set[str] = set()
        self._doubted: set[str] = set()

    def every(self) -> list[Path]:
        """Every folder a save has begun, newest first."""
        found = [path for path in inside(self.root) if NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: (number(path.name), path.name), reverse=True)

    def committed(self) -> list[Path]:
        """Those that are checkpoints, the last one saved first."""
        return [folder for folder in self.every() if checkpoint_names.is_committed(folder)]

    def new(self, step: int, last: int) -> str:
        """The name of a new one; `last` is the highest number that another place has."""
        self._owner.check()
        last = max((last, *(number(folder.name) for folder in self.every())))
        folder = self.root / f"step-{step:08d}.{last + 1:06d}"
        folder.mkdir(parents=True)
        return folder.name

    def confirmed(self) -> None:
        """The newest was read back whole."""
        self.distrusted |= self._doubted  # with a newer one that is good, it does not matter
        self._doubted.clear()

    def doubt(self, name: str) -> None:
        """This one could not be read back, and may be good."""
        self._doubted.add(name)

    def prune(self) -> None:
        """Delete all but the newest that were confirmed, and as many that are doubted.

        What can't be deleted costs space; it must not cost the run.
        """
        with suppress(OSError):
            trusted = [folder for folder in self.committed() if folder.name not in self.distrusted]
            doubted = [folder for folder in trusted if folder.name in self._doubted]
            sure = [folder for folder in trusted if folder not in doubted]
            for folder in self.every():
                if folder not in (*sure[: self._keep], *doubted[: self._keep]):
                    self._remove(folder)

    def abandon(self, folder: Path) -> None:
        """Delete what will not be committed any more: a full disk needs the space back."""
        with suppress(OSError, Superseded):
            if not checkpoint_names.is_committed(folder):
                self._remove(folder)

    def _remove(self, folder: Path) -> None:
        with suppress(OSError):
            taken = self._owner.take(folder)
            manifest.remove(taken, rmtree=partial(shutil.rmtree, ignore_errors=True))
