"""List the folders of a run's checkpoints, tell which can be trusted, and delete old ones."""

import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

from toolkit.training.attempt.fencing import Fence
from toolkit.training.checkpoint import manifest
from toolkit.training.errors import Superseded
from toolkit.training.io.durable_files import list_folder
from toolkit.training.run_folder import checkpoint_names
from toolkit.training.run_folder.checkpoint_names import NAME, save_number


class Folders:
    """The checkpoint folders under `root`, as one rank sees them.

    Only the attempt that has the run, by its `fence`, makes and deletes any.
    """

    def __init__(self, root: Path, keep: int, fence: Fence) -> None:
        self.root, self._keep, self._fence = root, keep, fence
        # Folders that are damaged, or may be and are of no use any more.
        self.distrusted_names: set[str] = set()
        # Folders that could not be read back, and may be good.
        self._doubted_names: set[str] = set()

    def all_folders(self) -> list[Path]:
        """Return every folder that a save has begun, newest first."""
        folders = [path for path in list_folder(self.root) if NAME.fullmatch(path.name)]
        return sorted(folders, key=lambda path: (save_number(path.name), path.name), reverse=True)

    def committed(self) -> list[Path]:
        """Return the folders that are checkpoints, the last one saved first."""
        return [folder for folder in self.all_folders() if checkpoint_names.is_committed(folder)]

    def create(self, step: int, last: int) -> str:
        """Make a new folder, and return its name.

        `last` is the highest number in the tiers.
        """
        self._fence.check()
        last = max((last, *(save_number(folder.name) for folder in self.all_folders())))
        folder = self.root / f"step-{step:08d}.{last + 1:06d}"
        folder.mkdir(parents=True)
        return folder.name

    def confirm_newest(self) -> None:
        """Note that the newest folder was read back whole."""
        self.distrusted_names |= self._doubted_names  # a newer one is good, so these are of no use
        self._doubted_names.clear()

    def mark_doubted(self, name: str) -> None:
        """Note that this folder could not be read, and may be good."""
        self._doubted_names.add(name)

    def prune(self) -> None:
        """Delete all but the newest confirmed folders, and as many doubted ones.

        A folder that can't be deleted costs space; it must not cost the run.
        """
        with suppress(OSError):
            names = self.distrusted_names
            trusted_paths = [path for path in self.committed() if path.name not in names]
            doubted_paths = [path for path in trusted_paths if path.name in self._doubted_names]
            confirmed_paths = [path for path in trusted_paths if path not in doubted_paths]
            for path in self.all_folders():
                if path not in (*confirmed_paths[: self._keep], *doubted_paths[: self._keep]):
                    self._remove(path)

    def abandon(self, folder: Path) -> None:
        """Delete a folder that will not be committed any more.

        A full disk needs the space back.
        """
        with suppress(OSError, Superseded):
            if not checkpoint_names.is_committed(folder):
                self._remove(folder)

    def _remove(self, folder: Path) -> None:
        with suppress(OSError):
            path = self._fence.move_to_trash(folder)
            manifest.remove(path, rmtree=partial(shutil.rmtree, ignore_errors=True))
