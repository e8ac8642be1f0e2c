"""Save to a node's own disk first: training goes on once the bytes are there.

    <root>/rank-00000/…     this rank's files that are not yet copied

The disk takes the place of memory when the state does not fit there twice. A copy on it is no
checkpoint, for the disk goes with its instance. The checkpoint exists once the folder that all
ranks share has it. A save that must end before the instance goes is written to that folder at once.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.training.checkpoint.collective import all_ranks_local
from toolkit.training.checkpoint.hashed_file import FileEntry
from toolkit.training.checkpoint.manifest import Manifest
from toolkit.training.checkpoint.tier import copy_file
from toolkit.training.checkpoint.torch_codec import Codec, Parts
from toolkit.training.distributed.process_group import ProcessGroup


@dataclass(frozen=True, slots=True)
class _LocalFiles:
    folder: Path
    entries: tuple[FileEntry, ...]


class ViaLocalDisk:
    """A codec around another one, whose copies are files under `root`.

    `root` is a folder of this run alone. The node's first rank deletes files there that a killed
    attempt has left.
    """

    def __init__(self, codec: Codec, root: Path, world: ProcessGroup) -> None:
        self._codec, self._root = codec, root
        if world.local_rank == 0:
            shutil.rmtree(root, ignore_errors=True)

    def stage(self, parts: Parts, world: ProcessGroup, *, copy: bool) -> Any:
        """Return this rank's share of the state, as the inner codec does.

        With `copy` the bytes are on the disk, and training may change the state.
        """
        # Two steps, as in a save: a rank that fails to stage must not leave others in a write.
        staged = all_ranks_local(world, lambda: self._codec.stage(parts, world, copy=False))
        if not copy:
            return staged
        return all_ranks_local(world, lambda: self._write_local(staged, world))

    def write(self, folder: Path, staged: Any, world: ProcessGroup) -> list[FileEntry]:
        """Copy this rank's files from its disk, verified on the way."""
        if not isinstance(staged, _LocalFiles):
            return self._codec.write(folder, staged, world)
        try:
            for entry in staged.entries:
                copy_file(staged.folder, entry, folder)
        finally:
            self._delete_local(staged.folder)
        return list(staged.entries)

    def read(
        self, folder: Path, manifest: Manifest, parts: Parts, world: ProcessGroup
    ) -> Callable[[], None]:
        """Read from the shared folder, as the inner codec does."""
        return self._codec.read(folder, manifest, parts, world)

    def _write_local(self, staged: Any, world: ProcessGroup) -> _LocalFiles:
        folder = self._root / f"rank-{world.rank:05d}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
            return _LocalFiles(folder, tuple(self._codec.write(folder, staged, world)))
        except BaseException:
            self._delete_local(folder)  # a full disk needs the space back
            raise

    def _delete_local(self, folder: Path) -> None:
        """Delete the folder as far as possible.

        The rest costs space, and must not cost the run.
        """
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # another rank's folder is in it
            self._root.rmdir()
