"""Make a folder a checkpoint: hash every file, then commit all of them by one rename.

`commit` is the only way a folder becomes a checkpoint, `verify` the only way to believe one. No
torch here: this module does not know what the files hold.
"""

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toolkit.training.checkpoint import hashes
from toolkit.training.checkpoint.hashed_file import (
    BLOCK,
    FileEntry,
    VerifiedReader,
    check_size,
    iter_blocks,
    verify_file,
)
from toolkit.training.errors import Corrupt, Unreadable
from toolkit.training.io.durable_files import (
    ABSENT,
    encode_line,
    fsync_directory,
    read_twice,
    write_atomic,
)
from toolkit.training.run_folder.checkpoint_names import COMMITTED

MANIFEST = "manifest.json"
_VERSION = 3
_OLDER_VERSION = 2  # all its hashes are SHA-256
WriteFile = Callable[[Path, bytes], None]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a committed folder."""

    files: tuple[FileEntry, ...]
    facts: Mapping[str, Any]
    verified_blocks: set[tuple[str, int]] = field(default_factory=set, compare=False, repr=False)
    """The blocks, by file and number, that this process has read through `open` and verified.

    No block need be read a second time to be verified.
    """

    def entry(self, name: str) -> FileEntry | None:
        return next((entry for entry in self.files if entry.name == name), None)

    def open(self, folder: Path, name: str) -> VerifiedReader:
        """Return a file for reading, every byte verified on its way.

        Raises Corrupt.
        """
        entry = self.entry(name)
        if entry is None:
            raise Corrupt(f"{folder.name}: has no {name}")
        return VerifiedReader(
            folder, entry, lambda number: self.verified_blocks.add((name, number))
        )


def commit(
    folder: Path,
    files: Sequence[FileEntry],
    facts: Mapping[str, Any],
    *,
    write: WriteFile = write_atomic,
) -> None:
    """Make `folder` a checkpoint.

    It is none until the last rename, which is `write`'s, whatever happens on the way.
    """
    fsync_directory(folder)  # makes the files' names durable, which their writers do not
    manifest = encode_line(
        {
            "version": _VERSION,
            "block": BLOCK,
            "files": [asdict(file) for file in files],
            "facts": facts,
        }
    )
    write_atomic(folder / MANIFEST, manifest)
    fsync_directory(folder.parent)
    write_commit(folder, manifest, write=write)


def write_commit(folder: Path, manifest: bytes, *, write: WriteFile = write_atomic) -> None:
    """Write COMMITTED: the one step that makes a checkpoint.

    All files that `manifest` names must be there.
    """
    write(folder / COMMITTED, commit_content(manifest))


def commit_content(manifest: bytes) -> bytes:
    """Return the content of COMMITTED for a manifest."""
    return encode_line({"manifest_sha256": hashlib.sha256(manifest).hexdigest()})


def read(folder: Path) -> Manifest:
    """Return the manifest of a committed folder, compared with the commit.

    Raises Corrupt.
    """
    try:
        paths = (folder / COMMITTED, folder / MANIFEST)
        commit_bytes, content = (read_twice(path, Path.read_bytes) for path in paths)
    except ABSENT as error:
        raise Corrupt(f"{folder.name}: {error.strerror}: {error.filename}") from error
    if commit_bytes != commit_content(content):
        raise Corrupt(f"{folder.name}: {MANIFEST} is not the one that was committed")
    return parse(folder.name, content)


def parse(name: str, content: bytes) -> Manifest:
    """Return the manifest in `content`.

    Raises Unreadable when this version does not understand it.
    """
    fields = json.loads(content)
    version = fields["version"]
    if version not in (_OLDER_VERSION, _VERSION) or fields.get("block") != BLOCK:
        raise Unreadable(f"{name}: {MANIFEST} has version {version}; this toolkit reads {_VERSION}")
    files = tuple(
        map(_parse_old_entry if version == _OLDER_VERSION else _parse_entry, fields["files"])
    )
    for hash_ in {file.hash for file in files}:
        hashes.new(hash_)  # raises Unreadable before any file is loaded
    return Manifest(files, fields["facts"])


def _parse_entry(file: dict[str, Any]) -> FileEntry:
    return FileEntry(**{**file, "blocks": tuple(file["blocks"])})


def _parse_old_entry(file: dict[str, Any]) -> FileEntry:
    return FileEntry(
        file["name"], file["size"], file["sha256"], tuple(file["blocks"]), hashes.SHA256
    )


def check_sizes(folder: Path, manifest: Manifest, *, rank: int, world_size: int) -> None:
    """Check that this rank's part of the files has its sizes.

    It finds missing files and wrong sizes at no cost. Raises Corrupt.
    """
    for entry in manifest.files[rank::world_size]:
        check_size(folder, entry)


def verify_rest(
    folder: Path,
    manifest: Manifest,
    verified_blocks: Collection[tuple[str, int]],
    *,
    rank: int,
    world_size: int,
) -> None:
    """Verify this rank's part of the blocks that are not in `verified_blocks`.

    Raises Corrupt.
    """
    unverified_blocks = [
        (entry, number)
        for entry in manifest.files
        for number in range(len(entry.blocks))
        if (entry.name, number) not in verified_blocks
    ]
    for entry, pairs in itertools.groupby(
        unverified_blocks[rank::world_size], key=lambda pair: pair[0]
    ):
        verify_file(folder, entry, [number for _, number in pairs])


def verify(
    folder: Path, *, rank: int = 0, world_size: int = 1, stop: Callable[[], bool] = lambda: False
) -> Manifest:
    """Read the files of a committed folder and compare their hashes.

    Each rank takes its part; together they have read every file. `stop` is called after
    each block: when it returns True, the rest stays unread. Raises Corrupt.
    """
    manifest = read(folder)
    for entry in manifest.files[rank::world_size]:
        for _ in iter_blocks(folder, entry):
            if stop():
                return manifest
    return manifest


def remove(folder: Path, *, rmtree: Callable[[Path], object] = shutil.rmtree) -> None:
    """Delete a folder; COMMITTED goes first.

    Stopped at any point, the folder is no checkpoint any more.
    """
    (folder / COMMITTED).unlink(missing_ok=True)
    fsync_directory(folder)
    rmtree(folder)
