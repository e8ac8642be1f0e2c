"""Datasets as folders on a node's own disk: filled once, shared by all jobs, evicted by size.

    entries/<hex>/{size,manifest.json,data/…}   complete, checked, read-only
    filling/<hex>/…                             incomplete; another process continues it
    trash/                                      being deleted
    locks/<hex>                                 shared: in use; exclusive: being filled or evicted
    budget                                      exclusive: space is being reserved

An entry appears and disappears as a whole, by a rename. A lock file's mtime is the last
use of its dataset. Space is reserved before a fill begins: `size` holds the bytes that
the folder will take in the end. Therefore entries and fills together never exceed the
limit.
"""

import errno
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from toolkit.datasets.cache.fill import Source, fill, find_damaged_files
from toolkit.datasets.cache.stats import Stats, StatsFile
from toolkit.datasets.errors import CacheFull, CacheTooSmall, CacheUnusable
from toolkit.datasets.filesystem import Disk
from toolkit.datasets.locks import Lock
from toolkit.datasets.progress import never_stop
from toolkit.datasets.store.manifest import Manifest, hex_of, parse

OpenSource = Callable[[], AbstractContextManager[tuple[Manifest, Source]]]

_FOLDERS = ("entries", "filling", "trash", "locks")


@dataclass(frozen=True, slots=True)
class Entry:
    """A dataset in the cache."""

    version: str
    size: int  # bytes, in whole blocks
    used_at: float  # epoch seconds
    in_use: bool


class HeldDataset:
    """A dataset that is not evicted until `release`, or until the process ends."""

    def __init__(self, version: str, folder: Path, lock: Lock, *, filled: bool) -> None:
        self.version, self.path, self.filled = version, folder / "data", filled
        self._folder, self._lock = folder, lock

    def manifest(self) -> Manifest:
        """Read the dataset's manifest from the cache and check it."""
        return parse((self._folder / "manifest.json").read_bytes(), self.version)

    def release(self) -> None:
        """Allow the dataset to be evicted."""
        self._lock.close()


class Cache:
    """A cache folder. Any number of processes use it at once, and any may die at any time."""

    def __init__(
        self,
        root: Path,
        *,
        limit: int,
        disk: Disk | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root, self.limit = root, limit
        self._disk, self._sleep, self._clock = disk or Disk(), sleep, clock
        try:
            for name in _FOLDERS:
                self._disk.make_folder(root / name)
        except OSError as error:
            raise CacheUnusable(f"can't use the cache {root}: {error.strerror}") from error
        self._stats = StatsFile(root, disk=self._disk, sleep=sleep)

    def hold(
        self,
        version: str,
        open_source: OpenSource,
        *,
        should_stop: Callable[[], bool] = never_stop,
        log: Callable[[str], None] | None = None,
    ) -> HeldDataset:
        """Return the dataset's folder, filled from the source unless it is cached.

        Waits while another process fills it. Raises CacheFull, DataStopped, and the errors
        of reading the source. The bytes fetched until then are kept for the next try,
        except on a full disk.
        """
        lock = self._lock(version)
        fetched_bytes, has_waited, fill_started_at = -1, False, self._clock()
        try:
            while True:
                has_waited = lock.acquire_shared(should_stop) or has_waited
                if self._entry(version).is_dir():
                    lock.mark_used()
                    seconds, folder = self._clock() - fill_started_at, self._entry(version)
                    self._count_request(fetched_bytes, seconds, has_waited=has_waited)
                    return HeldDataset(version, folder, lock, filled=fetched_bytes >= 0)
                lock.unlock()
                has_waited = lock.acquire_exclusive(should_stop) or has_waited
                if not self._entry(version).is_dir():
                    lock.mark_used()
                    fill_started_at = self._clock()
                    with open_source() as (manifest, source):
                        fetched_bytes = self._fill(manifest, source, should_stop, log)
                # Turning the lock into a shared one leaves a gap: the loop looks again.
        except BaseException:
            lock.close()
            raise

    def entries(self) -> list[Entry]:
        """Return the complete entries, the least recently used first."""
        cached_entries = []
        for folder in self._folders("entries"):
            version = f"sha256:{folder.name}"
            with self._lock(version) as lock:
                used_at = lock.path.stat().st_mtime
                in_use = not lock.try_exclusive()
            cached_entries.append(Entry(version, _size(folder), used_at, in_use))
        return sorted(cached_entries, key=lambda entry: (entry.used_at, entry.version))

    @property
    def used_bytes(self) -> int:
        """Return the bytes reserved by entries and fills."""
        return sum(
            _size(folder) for name in ("entries", "filling") for folder in self._folders(name)
        )

    def stats(self) -> Stats:
        """Return the counts since the cache began."""
        return self._stats.read()

    def verify(self, version: str) -> list[str] | None:
        """Read an entry, compare it, and evict it if damaged.

        Returns the damaged paths, None if there is no entry. A damaged entry that a job
        holds stays: the job has read those bytes already.
        """
        with self._lock(version) as lock:
            lock.acquire_shared()
            folder = self._entry(version)
            if not folder.is_dir():
                return None
            manifest = parse((folder / "manifest.json").read_bytes(), version)
            damaged_paths = find_damaged_files(manifest, folder / "data")
            if damaged_paths and lock.try_exclusive() and folder.is_dir():
                self._evict(folder)
            return damaged_paths

    def evict(self, version: str) -> bool:
        """Evict an entry unless it is used; return whether it was."""
        with self._lock(version) as lock:
            if not lock.try_exclusive():
                return False
            if self._entry(version).is_dir():
                self._evict(self._entry(version))
            return True

    # -- filling

    def _fill(
        self,
        manifest: Manifest,
        source: Source,
        should_stop: Callable[[], bool],
        log: Callable[[str], None] | None,
    ) -> int:
        """Fill the entry under the exclusive lock; return the bytes fetched.

        On return the entry is complete and on disk.
        """
        folder = self.root / "filling" / hex_of(manifest.version)
        try:
            self._reserve(folder, manifest.footprint, should_stop)
            data, disk = folder / "data", self._disk
            size = fill(manifest, data, source, disk=disk, should_stop=should_stop, log=log)
            self._disk.write_file(folder / "manifest.json", manifest.encoded)
            self._disk.sync(folder)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise CacheUnusable(f"can't write to {self.root}: {error.strerror}") from error
            # The space is given back: other files on this disk need it as well.
            self._disk.remove_tree(folder)
            raise CacheFull(f"the disk of the cache {self.root} is full") from error
        self._disk.rename(folder, self._entry(manifest.version))
        return size

    def _reserve(self, folder: Path, size: int, should_stop: Callable[[], bool]) -> None:
        """Reserve space, evicting the least recently used folders. Raises CacheFull."""
        if size > self.limit:
            raise CacheTooSmall(
                f"the dataset needs {_gb(size)}, the cache's limit is {_gb(self.limit)}",
                next_step="set TOOLKIT_DATA_CACHE_GIB, or TOOLKIT_DATA_CACHE to a larger disk",
            )
        with Lock(self.root / "budget", sleep=self._sleep) as budget:
            budget.acquire_exclusive(should_stop)
            for trash_folder in self._folders("trash"):
                self._disk.remove_tree(trash_folder)
            other_bytes = self.used_bytes - _size(folder)
            for candidate in self._candidates(excluded_folder=folder):
                if other_bytes + size <= self.limit:
                    break
                other_bytes -= self._evict_unless_used(candidate)
            if other_bytes + size > self.limit:
                raise CacheFull(
                    f"the dataset needs {_gb(size)}; running jobs hold {_gb(other_bytes)}"
                    f" of the cache's limit of {_gb(self.limit)}",
                    next_step="wait for these jobs, or set TOOLKIT_DATA_CACHE_GIB",
                )
            self._disk.make_folder(folder)
            self._disk.write_file(folder / "size", f"{size}\n".encode())

    def _candidates(self, *, excluded_folder: Path) -> list[Path]:
        """Return entries and abandoned fills, the least recently used first."""
        folders = [*self._folders("filling"), *self._folders("entries")]
        return sorted((path for path in folders if path != excluded_folder), key=self._used_at)

    def _evict_unless_used(self, folder: Path) -> int:
        with self._lock(f"sha256:{folder.name}") as lock:
            if not lock.try_exclusive() or not folder.is_dir():
                return 0
            size = _size(folder)
            self._evict(folder)
            return size

    def _evict(self, folder: Path) -> None:
        """Evict the folder under its exclusive lock.

        One rename hides the whole folder, then it is deleted.
        """
        size, is_entry = _size(folder), folder.parent.name == "entries"
        trash_folder = self.root / "trash" / f"{folder.name}.{uuid.uuid4().hex}"
        self._disk.rename(folder, trash_folder)
        self._disk.remove_tree(trash_folder)
        if is_entry:
            self._stats.add(evictions=1, evicted_bytes=size)

    def _count_request(self, fetched_bytes: int, seconds: float, *, has_waited: bool) -> None:
        if fetched_bytes >= 0:
            self._stats.add(fills=1, fetched_bytes=fetched_bytes, fill_seconds=seconds)
        else:
            self._stats.add(**{"joined" if has_waited else "hits": 1})

    # -- places

    def _entry(self, version: str) -> Path:
        return self.root / "entries" / hex_of(version)

    def _lock(self, version: str) -> Lock:
        return Lock(self.root / "locks" / hex_of(version), sleep=self._sleep)

    def _used_at(self, folder: Path) -> float:
        try:
            return (self.root / "locks" / folder.name).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _folders(self, name: str) -> list[Path]:
        return sorted(path for path in (self.root / name).iterdir() if path.is_dir())


def _size(folder: Path) -> int:
    """Return the bytes reserved for the folder, 0 before its fill."""
    try:
        return int((folder / "size").read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return 0


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
