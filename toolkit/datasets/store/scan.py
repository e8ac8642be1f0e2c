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

from toolkit.datasets import chunks, parallel
from toolkit.datasets.errors import DatasetUnknown, NameRefused, SourceChanged
from toolkit.datasets.parallel import Progress
from toolkit.datasets.store.manifest import File, Manifest, check_path, manifest
from toolkit.datasets.store.transfer import LocalFile
from toolkit.training.io.durable_files import write_atomic

Known = Mapping[str, tuple[int, int, int, tuple[str, ...]]]

RACY_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Found:
    """A file found in the folder; size, mtime and inode reveal a change."""

    path: str  # in the dataset
    place: Path  # where its bytes are; differs for a symbolic link
    size: int
    mtime: int  # nanoseconds
    inode: int


@dataclass(frozen=True, slots=True)
class Scanned:
    """A hashed folder."""

    manifest: Manifest
    places: Mapping[str, Path]  # where each path's bytes are
    hashed: int  # files that had to be read


def scan(
    root: Path,
    *,
    memory: "Memory | None" = None,
    stop: Callable[[], bool] = parallel.never,
    say: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.time,
) -> Scanned:
    """Hash the files below `root` and return their manifest.

    Raises NameRefused, SourceChanged, DatasetUnknown, Stopped.
    """
    root = root.resolve()
    if not root.is_dir():
        raise DatasetUnknown(f"{root} is not a folder")
    now = int(clock() * 1e9)
    found = sorted(_walk(root), key=lambda one: one.path.encode())
    known = memory.load() if memory else {}
    hashes = {one.path: before for one in found if (before := _unchanged(one, known)) is not None}
    fresh = [one for one in found if one.path not in hashes]
    hashes.update(_hash(fresh, stop, say))
    made = manifest(File(one.path, one.size, hashes[one.path]) for one in found)
    if memory and (fresh or len(known) != len(found)):
        settled = [one for one in found if now - one.mtime > RACY_NS]
        memory.store(
            {one.path: (one.size, one.mtime, one.inode, hashes[one.path]) for one in settled}
        )
    return Scanned(made, {one.path: one.place for one in found}, len(fresh))


class Memory:
    """The hashes of earlier scans of a folder, in a file that may be lost at any time."""

    def __init__(self, folder: Path, root: Path) -> None:
        name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()
        self._path = folder / f"{name}.json"

    def load(self) -> Known:
        try:
            said = json.loads(self._path.read_bytes())
            return {
                str(path): (int(size), int(mtime), int(inode), tuple(map(str, hashes)))
                for path, (size, mtime, inode, hashes) in said.items()
            }
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def store(self, known: Known) -> None:
        with suppress(OSError):  # without it the next scan reads more, that is all
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(known).encode())


def default_memory(root: Path, environment: Mapping[str, str] = os.environ) -> Memory:
    """Return this user's memory of a folder."""
    cache = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Memory(Path(cache) / "toolkit" / "data", root)


def _walk(root: Path) -> Iterator[Found]:
    todo = [(root, "")]
    while todo:
        folder, prefix = todo.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                path = prefix + entry.name
                check_path(path)
                if entry.is_dir(follow_symlinks=False):
                    todo.append((Path(entry.path), f"{path}/"))
                else:
                    yield _found(root, path, Path(entry.path))


def _found(root: Path, path: str, place: Path) -> Found:
    """Return a regular file, or a link's target inside the folder.

    Raises NameRefused for anything else.
    """
    if place.is_symlink():
        target = place.resolve()
        if not target.is_relative_to(root) or not target.is_file():
            raise NameRefused(
                f"{path} is a symbolic link that does not lead to a file in the dataset",
                next_step="put the file in its place",
            )
        place = target
    facts = place.lstat()
    if not stat.S_ISREG(facts.st_mode):
        raise NameRefused(f"{path} is neither a file nor a folder", next_step="take it out")
    return Found(path, place, facts.st_size, facts.st_mtime_ns, facts.st_ino)


def _unchanged(one: Found, known: Known) -> tuple[str, ...] | None:
    before = known.get(one.path)
    if before and before[:3] == (one.size, one.mtime, one.inode):
        return before[3] if len(before[3]) == chunks.count(one.size) else None
    return None


def _hash(
    found: list[Found], stop: Callable[[], bool], say: Callable[[str], None] | None
) -> dict[str, tuple[str, ...]]:
    hashes = {one.path: [""] * chunks.count(one.size) for one in found}
    total = sum(one.size for one in found)
    progress = Progress("hashing", files=len(found), size=total, say=say)
    left = {one.path: len(hashes[one.path]) for one in found}
    lock = threading.Lock()

    def work(task: tuple[Found, chunks.Span], buffer: memoryview) -> None:
        one, span = task
        read = chunks.digest(LocalFile(one.place).pieces(span, buffer))
        hashes[one.path][span.offset // chunks.CHUNK] = read
        with lock:
            left[one.path] -= 1
            last = left[one.path] == 0
        if last:
            _check_unchanged(one)
        progress.add(span.length, files=int(last))

    tasks = ((one, span) for one in found for span in chunks.spans(one.size))
    parallel.run(tasks, work, workers=parallel.local_workers(), stop=stop, progress=progress)
    return {path: tuple(parts) for path, parts in hashes.items()}


def _check_unchanged(one: Found) -> None:
    facts = one.place.lstat()
    if (facts.st_size, facts.st_mtime_ns, facts.st_ino) != (one.size, one.mtime, one.inode):
        raise SourceChanged(f"{one.path} changed while it was read", next_step="run it again")
