"""Scans a folder into a manifest: checks names, hashes content on several threads.

A file's hashes are remembered by (size, mtime, inode), so an unchanged folder is only
listed. A file that changed less than two seconds before the scan is not remembered. It
could change once more within the same tick of the filesystem's clock.
"""

import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from toolkit.datasets import chunks
from toolkit.datasets.errors import DatasetUnknown, NameRefused, SourceChanged
from toolkit.datasets.progress import Progress, never_stop
from toolkit.datasets.store.manifest import File, Manifest, check_path, make_manifest
from toolkit.datasets.store.transfer import LocalFile
from toolkit.training.io import parallel
from toolkit.training.io.durable_files import write_atomic

LeftOut = Callable[[str], bool]
"""Whether a path of the folder, a file's or a folder's, is no part of the dataset."""
KnownHashes = Mapping[str, tuple[int, int, int, tuple[str, ...]]]

RACY_NS = 2_000_000_000


def keep_all(_path: str) -> bool:
    """Leave no path of the folder out."""
    return False


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file found in the folder; size, mtime and inode reveal a change."""

    path: str  # in the dataset
    content_path: Path  # where its bytes are; differs for a symbolic link
    size: int
    mtime: int  # nanoseconds
    inode: int


@dataclass(frozen=True, slots=True)
class ScanResult:
    """A hashed folder."""

    manifest: Manifest
    content_paths: Mapping[str, Path]  # where each path's bytes are
    hashed_files: int  # files that had to be read


def scan(
    root: Path,
    *,
    memory: "ScanMemory | None" = None,
    left_out: LeftOut = keep_all,
    should_stop: Callable[[], bool] = never_stop,
    log: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.time,
) -> ScanResult:
    """Hash the files below `root` and return their manifest.

    Paths that are `left_out` do not count. Raises NameRefused, SourceChanged, DatasetUnknown,
    DataStopped.
    """
    root = root.resolve()
    if not root.is_dir():
        raise DatasetUnknown(f"{root} is not a folder")
    now = int(clock() * 1e9)
    files = sorted(_walk(root, left_out), key=lambda file: file.path.encode())
    known_hashes = memory.load() if memory else {}
    found = {file.path: _known_hashes(file, known_hashes) for file in files}
    hashes = {path: old_hashes for path, old_hashes in found.items() if old_hashes is not None}
    changed_files = [file for file in files if file.path not in hashes]
    hashes.update(_hash(changed_files, should_stop, log))
    manifest = make_manifest(File(file.path, file.size, hashes[file.path]) for file in files)
    if memory and (changed_files or len(known_hashes) != len(files)):
        memory.store(
            {
                file.path: (file.size, file.mtime, file.inode, hashes[file.path])
                for file in files
                if now - file.mtime > RACY_NS
            }
        )
    content_paths = {file.path: file.content_path for file in files}
    return ScanResult(manifest, content_paths, len(changed_files))


class ScanMemory:
    """The hashes of earlier scans of a folder, in a file that may be lost at any time."""

    def __init__(self, folder: Path, root: Path) -> None:
        name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()
        self._path = folder / f"{name}.json"

    def load(self) -> KnownHashes:
        try:
            record = json.loads(self._path.read_bytes())
            return {
                str(path): (int(size), int(mtime), int(inode), tuple(map(str, hashes)))
                for path, (size, mtime, inode, hashes) in record.items()
            }
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def store(self, known_hashes: KnownHashes) -> None:
        with suppress(OSError):  # without it the next scan reads more, that is all
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(known_hashes).encode())


def default_memory(root: Path, environment: Mapping[str, str] = os.environ) -> ScanMemory:
    """Return this user's memory of a folder."""
    cache = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return ScanMemory(Path(cache) / "toolkit" / "data", root)


def _walk(root: Path, left_out: LeftOut) -> Iterator[FoundFile]:
    pending_folders = [(root, "")]
    while pending_folders:
        folder, prefix = pending_folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                path = prefix + entry.name
                if left_out(path):
                    continue
                check_path(path)
                if entry.is_dir(follow_symlinks=False):
                    pending_folders.append((Path(entry.path), f"{path}/"))
                else:
                    yield _regular_file(root, path, Path(entry.path))


def _regular_file(root: Path, path: str, content_path: Path) -> FoundFile:
    """Return a regular file, or a link's target inside the folder.

    Raises NameRefused for anything else.
    """
    if content_path.is_symlink():
        target = content_path.resolve()
        if not target.is_relative_to(root) or not target.is_file():
            raise NameRefused(
                f"{path} is a symbolic link that does not lead to a file in the dataset",
                next_step="replace the link by the file",
            )
        content_path = target
    status = content_path.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise NameRefused(f"{path} is neither a file nor a folder", next_step="remove it")
    return FoundFile(path, content_path, status.st_size, status.st_mtime_ns, status.st_ino)


def _known_hashes(file: FoundFile, known_hashes: KnownHashes) -> tuple[str, ...] | None:
    entry = known_hashes.get(file.path)
    if entry and entry[:3] == (file.size, file.mtime, file.inode):
        return entry[3] if len(entry[3]) == chunks.count(file.size) else None
    return None


def _hash(
    files: list[FoundFile], should_stop: Callable[[], bool], log: Callable[[str], None] | None
) -> dict[str, tuple[str, ...]]:
    hashes = {file.path: [""] * chunks.count(file.size) for file in files}
    total = sum(file.size for file in files)
    progress = Progress("hashing", files=len(files), size=total, should_stop=should_stop, log=log)
    missing_chunks = {file.path: len(hashes[file.path]) for file in files}
    lock = threading.Lock()

    def work(task: tuple[FoundFile, chunks.Span], buffer: memoryview) -> None:
        file, span = task
        chunk_digest = chunks.digest(LocalFile(file.content_path).pieces(span, buffer))
        hashes[file.path][span.offset // chunks.CHUNK] = chunk_digest
        with lock:
            missing_chunks[file.path] -= 1
            is_last = missing_chunks[file.path] == 0
        if is_last:
            _check_unchanged(file)
        progress.add(span.length, files=int(is_last))

    tasks = ((file, span) for file in files for span in chunks.spans(file.size))
    parallel.run(tasks, work, workers=parallel.local_workers(), tick=progress.tick)
    return {path: tuple(chunk_hashes) for path, chunk_hashes in hashes.items()}


def _check_unchanged(file: FoundFile) -> None:
    status = file.content_path.lstat()
    if (status.st_size, status.st_mtime_ns, status.st_ino) != (file.size, file.mtime, file.inode):
        raise SourceChanged(f"{file.path} changed during the scan", next_step="add it again")
