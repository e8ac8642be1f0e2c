"""Keep a copy of each checkpoint in further places, as trustworthy as the first.

A checkpoint is saved in one folder that all ranks share (`Checkpointer`'s root). From there it is
copied to every tier in turn, such as S3. An instance's own disk comes before that folder, not
behind it (`local_disk`).

The blocks are compared with the manifest as they are copied, so a tier never holds other bytes than
were written. One last step commits the copy. A copy that a kill cut short is continued.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from toolkit.training.checkpoint import manifest
from toolkit.training.checkpoint.hashed_file import (
    FileEntry,
    HashingWriter,
    iter_blocks,
    verify_file,
)
from toolkit.training.checkpoint.manifest import MANIFEST, Manifest
from toolkit.training.errors import Corrupt
from toolkit.training.io.durable_files import fsync_directory, list_folder, write_atomic
from toolkit.training.run_folder import checkpoint_names
from toolkit.training.run_folder.checkpoint_names import NAME


class Tier(Protocol):
    """Another place for checkpoints. Each rank pushes and fetches its part of the files."""

    @property
    def outlives_notice(self) -> bool:
        """Return whether a job that stops waits for its copy here."""
        ...

    def names(self) -> list[str]:
        """Return the checkpoints committed here, in no order."""
        ...

    def unfinished(self) -> list[str]:
        """Return the checkpoints begun here and not committed.

        Such as an upload that a kill cut short.
        """
        ...

    def push(self, folder: Path, entries: Iterable[FileEntry]) -> None:
        """Copy files of a committed folder.

        May be repeated: it then copies only files that are missing or differ from what was written.
        """
        ...

    def commit(self, folder: Path) -> None:
        """Make the copy a checkpoint. All its files must be here."""
        ...

    def manifest(self, name: str) -> tuple[Manifest, bytes]:
        """Return a checkpoint's manifest, parsed and as bytes.

        Raises Corrupt.
        """
        ...

    def fetch(self, name: str, entries: Iterable[FileEntry], folder: Path) -> None:
        """Copy files to `folder`, each durable on return. Raises Corrupt."""
        ...

    def remove(self, name: str) -> None:
        """Delete a checkpoint.

        Stopped at any point, it is no checkpoint any more.
        """
        ...


class FolderTier:
    """A tier that is a folder on another filesystem."""

    def __init__(self, root: Path, *, outlives_notice: bool = True) -> None:
        self._root, self.outlives_notice = root, outlives_notice

    def names(self) -> list[str]:
        return [path.name for path in self._folders() if checkpoint_names.is_committed(path)]

    def unfinished(self) -> list[str]:
        return [path.name for path in self._folders() if not checkpoint_names.is_committed(path)]

    def push(self, folder: Path, entries: Iterable[FileEntry]) -> None:
        target = self._root / folder.name
        target.mkdir(parents=True, exist_ok=True)
        for entry in entries:
            if not _has_file(target, entry):
                copy_file(folder, entry, target)

    def commit(self, folder: Path) -> None:
        target = self._root / folder.name
        content = (folder / MANIFEST).read_bytes()
        fsync_directory(target)
        write_atomic(target / MANIFEST, content)
        fsync_directory(self._root)
        manifest.write_commit(target, content)

    def manifest(self, name: str) -> tuple[Manifest, bytes]:
        loaded_manifest = manifest.read(self._root / name)
        return loaded_manifest, (self._root / name / MANIFEST).read_bytes()

    def fetch(self, name: str, entries: Iterable[FileEntry], folder: Path) -> None:
        for entry in entries:
            copy_file(self._root / name, entry, folder)

    def remove(self, name: str) -> None:
        manifest.remove(self._root / name, rmtree=_rmtree)

    def _folders(self) -> list[Path]:
        return [path for path in list_folder(self._root) if NAME.fullmatch(path.name)]


def copy_file(source: Path, entry: FileEntry, target: Path) -> None:
    """Copy one file, verified on the way and durable on return.

    Raises Corrupt.
    """
    (target / entry.name).unlink(missing_ok=True)
    with HashingWriter(target / entry.name, entry.hash) as writer:
        for block in iter_blocks(source, entry):
            writer.write(block)


def _has_file(folder: Path, entry: FileEntry) -> bool:
    try:
        verify_file(folder, entry)
    except Corrupt:
        return False
    return True


def _rmtree(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
