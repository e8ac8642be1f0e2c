"""Copy a folder into the store, and a dataset out of it: stage-in and stage-out.

Both may be killed at any point and repeated. Each file is checked against the manifest on the way.
A copy appears as a whole: by its name in the store, or by one rename of the folder.
"""

import errno
import fnmatch
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolkit.datasets.cache.fill import fill
from toolkit.datasets.copy_plan import CopyPlan, CopyRates, duration, gb, plan_get, plan_put
from toolkit.datasets.errors import FolderFull, FolderTaken
from toolkit.datasets.filesystem import Disk
from toolkit.datasets.locks import Lock
from toolkit.datasets.progress import never_stop
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.manifest import Manifest, hex_of
from toolkit.datasets.store.port import OBJECTS
from toolkit.datasets.store.scan import LeftOut, default_memory, keep_all, scan
from toolkit.training.run_folder.checkpoint_names import NAME, is_committed

_PRIVATE_PARTS = ("checkpoints/owner", "checkpoints/owner.*", "submission", "token")
_OF_ONE_ATTEMPT = ("container.*", "*.tmp")
_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CopyResult:
    """A finished copy."""

    reference: str  # name@number, or the version of a copy without a name
    version: str
    place: str  # the store's URL, or the folder
    files: int
    size: int
    copied_bytes: int
    seconds: float

    def __str__(self) -> str:
        """Return the result as one sentence."""
        what = f"{self.reference} is in {self.place}: {self.files:,} files, {gb(self.size)}"
        if not self.copied_bytes:
            return f"{what}, all checked; nothing had to be copied"
        took = f"{gb(self.copied_bytes)} copied in {duration(self.seconds)}"
        return f"{what}, all checked; {took}"


def put(
    catalog: Catalog,
    folder: Path,
    name: str,
    *,
    left_out: LeftOut = keep_all,
    should_stop: Callable[[], bool] = never_stop,
    log: Log | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> CopyResult:
    """Add the folder to the store under a name.

    Raises the errors of `add`.
    """
    started_at = clock()
    added = add(
        catalog,
        folder,
        name=name,
        memory=default_memory(folder),
        left_out=left_out,
        should_stop=should_stop,
        log=log,
    )
    return CopyResult(
        reference=added.named.reference if added.named else added.version,
        version=added.version,
        place=catalog.store.url,
        files=added.files,
        size=added.size,
        copied_bytes=added.sent_bytes,
        seconds=clock() - started_at,
    )


def get(
    catalog: Catalog,
    reference: str,
    folder: Path,
    *,
    disk: Disk | None = None,
    should_stop: Callable[[], bool] = never_stop,
    log: Log | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> CopyResult:
    """Copy a dataset's files to a new or empty folder.

    A folder that has this very content is left as it is. Raises FolderTaken for one that has
    other content, FolderFull, and the errors of reading the store.
    """
    started_at = clock()
    version = catalog.resolve(reference)
    manifest = catalog.manifest(version)
    target = folder.absolute()
    copied_bytes = _fetch(
        catalog, manifest, target, disk=disk or Disk(), should_stop=should_stop, log=log
    )
    return CopyResult(
        reference=reference,
        version=version,
        place=str(target),
        files=len(manifest.files),
        size=manifest.size,
        copied_bytes=copied_bytes,
        seconds=clock() - started_at,
    )


def planned_put(
    catalog: Catalog, folder: Path, rates: CopyRates, *, left_out: LeftOut = keep_all
) -> CopyPlan:
    """Return what `put` would do.

    It reads the folder, and lists the store's content.
    """
    manifest = scan(folder, memory=default_memory(folder), left_out=left_out).manifest
    if catalog.has(manifest.version):
        return plan_put(manifest, {file.object for file in manifest.files}, rates)
    stored = {item.key.rpartition("/")[2] for item in catalog.store.list(OBJECTS)}
    return plan_put(manifest, stored, rates)


def planned_get(catalog: Catalog, reference: str, folder: Path, rates: CopyRates) -> CopyPlan:
    """Return what `get` would do.

    The files of an unfinished copy count as missing.
    """
    manifest = catalog.manifest(catalog.resolve(reference))
    is_there = _is_there(folder.absolute(), manifest.version)
    return plan_get(manifest, {file.path for file in manifest.files} if is_there else (), rates)


def unshared_parts(run_folder: Path) -> LeftOut:
    """Tell which parts of a run folder are not for others.

    A store is read by every user. The submission and a notebook's password are the user's alone.
    Other parts are of no use after their attempt.
    """

    def left_out(path: str) -> bool:
        if any(fnmatch.fnmatchcase(path, part) for part in (*_PRIVATE_PARTS, *_OF_ONE_ATTEMPT)):
            return True
        place = run_folder / path
        is_checkpoint = path.startswith("checkpoints/") and NAME.fullmatch(place.name)
        return bool(is_checkpoint) and not is_committed(place)

    return left_out


def _is_there(target: Path, version: str) -> bool:
    """Return whether the folder has the whole dataset already.

    Raises FolderTaken if it has anything else.
    """
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return False
    if target.is_dir() and scan(target).manifest.version == version:
        return True
    raise FolderTaken(
        f"{target} has other content than {version}, and none of it is replaced",
        next_step="name a new folder, or move this one away",
    )


def _fetch(
    catalog: Catalog,
    manifest: Manifest,
    target: Path,
    *,
    disk: Disk,
    should_stop: Callable[[], bool],
    log: Log | None,
) -> int:
    """Fill a hidden folder beside the target, and rename it.

    Returns the bytes fetched.
    """
    unfinished = target.with_name(f".{target.name}.{hex_of(manifest.version)[:12]}.unfinished")
    fetched_bytes = 0
    try:
        if not _is_there(target, manifest.version):
            disk.make_folder(unfinished)
            with Lock(unfinished / "lock") as lock:
                lock.acquire_exclusive(should_stop)
                if not _is_there(target, manifest.version):  # another process may have done it
                    fetched_bytes = fill(
                        manifest,
                        unfinished / "data",
                        catalog.store,
                        disk=disk,
                        title=f"fetching {target.name}",
                        should_stop=should_stop,
                        log=log,
                    )
                    _publish(manifest, unfinished / "data", target, disk)
        disk.remove_tree(unfinished)
    except OSError as error:
        if error.errno not in _FULL_ERRNOS:
            raise
        raise FolderFull(
            f"the filesystem of {target} is full; the dataset needs {gb(manifest.footprint)}",
            next_step="make room and submit again: what was copied is kept",
        ) from error
    return fetched_bytes


def _publish(manifest: Manifest, data: Path, target: Path, disk: Disk) -> None:
    for file in manifest.files:
        disk.unprotect(data / file.path)  # a person's own files, not a cache's
    disk.sync(data)
    disk.rename(data, target)
