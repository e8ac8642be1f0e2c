"""A folder that can be trusted: every file hashed, and one rename that says all of it is there.

`commit` is the only way a folder becomes a checkpoint, `verify` the only way one is believed.
No torch here: what the files hold is not this module's business.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from toolkit.training.files import encode, fsync_directory, read_json, write_atomic

MANIFEST = "manifest.json"
COMMITTED = "COMMITTED"


class Corrupt(Exception):  # noqa: N818  # reads as what it is at every raise and except
    """The folder is not the checkpoint that was committed; the message says in what."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file as it was written."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a committed folder holds and what it says about itself."""

    files: tuple[FileEntry, ...]
    facts: Mapping[str, Any]

    def entry(self, name: str) -> FileEntry | None:
        return next((entry for entry in self.files if entry.name == name), None)


class HashingWriter:
    """A binary file for writing that knows the sha256 of its content; on disk when closed."""

    def __init__(self, path: Path) -> None:
        self._path, self._digest, self._size = path, hashlib.sha256(), 0
        # Exclusive: a checkpoint's folder is new, nothing in it is ever written twice.
        self._stream: IO[bytes] = path.open("xb")

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._stream.write(view)
        self._digest.update(view)
        self._size += len(view)
        return len(view)

    def flush(self) -> None:
        self._stream.flush()

    def entry(self) -> FileEntry:
        return FileEntry(self._path.name, self._size, self._digest.hexdigest())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        with self._stream:
            if kind is None:
                self._stream.flush()
                os.fsync(self._stream.fileno())


def commit(folder: Path, files: Sequence[FileEntry], facts: Mapping[str, Any]) -> None:
    """Make `folder` a checkpoint. Until the last rename it is none, whatever happens on the way."""
    fsync_directory(folder)  # the names of the files, which their writers left to us
    manifest = encode({"version": 1, "files": [asdict(file) for file in files], "facts": facts})
    write_atomic(folder / MANIFEST, manifest)
    fsync_directory(folder.parent)
    proof = {"manifest_sha256": hashlib.sha256(manifest).hexdigest()}
    write_atomic(folder / COMMITTED, encode(proof))


def is_committed(folder: Path) -> bool:
    return (folder / COMMITTED).is_file()


def read(folder: Path) -> Manifest:
    """The manifest of a committed folder, itself checked against the commit. Raises Corrupt."""
    proof = read_json(folder / COMMITTED)
    if proof is None:
        raise Corrupt(f"{folder.name}: was never committed")
    try:
        content = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise Corrupt(f"{folder.name}: {MANIFEST} can't be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != proof.get("manifest_sha256"):
        raise Corrupt(f"{folder.name}: {MANIFEST} is not the one that was committed")
    fields = json.loads(content)
    return Manifest(tuple(FileEntry(**file) for file in fields["files"]), fields["facts"])


def read_file(folder: Path, entry: FileEntry) -> bytes:
    """The content of a file, checked; what was checked is what is returned. Raises Corrupt."""
    try:
        content = (folder / entry.name).read_bytes()
    except OSError as error:
        raise Corrupt(f"{folder.name}/{entry.name}: can't be read: {error.strerror}") from error
    _compare(folder, entry, len(content), hashlib.sha256(content).hexdigest())
    return content


def verify(folder: Path) -> Manifest:
    """Read every file of a committed folder and compare its hash. Raises Corrupt."""
    manifest = read(folder)
    for entry in manifest.files:
        try:
            with (folder / entry.name).open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
                size = stream.tell()
        except OSError as error:
            raise Corrupt(f"{folder.name}/{entry.name}: can't be read: {error.strerror}") from error
        _compare(folder, entry, size, digest)
    return manifest


def remove(folder: Path, *, rmtree: Callable[[Path], object] = shutil.rmtree) -> None:
    """Delete a folder so that, stopped at any point, it is no checkpoint any more."""
    (folder / COMMITTED).unlink(missing_ok=True)
    fsync_directory(folder)
    rmtree(folder)


def _compare(folder: Path, entry: FileEntry, size: int, sha256: str) -> None:
    if size != entry.size:
        raise Corrupt(f"{folder.name}/{entry.name}: {size} bytes, {entry.size} were written")
    if sha256 != entry.sha256:
        raise Corrupt(f"{folder.name}/{entry.name}: content differs from what was written")
