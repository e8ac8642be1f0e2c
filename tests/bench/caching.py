"""Benchmark of filling a dataset cache against plain copies.

The ways take turns on the same files in one run. There are three sources: a folder whose content is
in memory, one behind a delay, and S3. The delay stands in for a network filesystem. S3 is moto's
server in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.s3 import moto_server
from toolkit.datasets.cache.cache import Cache
from toolkit.datasets.filesystem import Disk
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore
from toolkit.datasets.store.port import object_key
from toolkit.datasets.store.s3_store import S3Store
from toolkit.training.io.parallel import BUFFER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from toolkit.datasets.chunks import Bytes, Readable, Span
    from toolkit.datasets.store.manifest import File, Manifest

REPEATS = 3
OPEN_SECONDS, READ_SECONDS = 0.001, 0.0005
"""The seconds to open a file and to read 256 KiB of it, on the slow stand-in."""
AT_ONCE = 16

Way = Callable[[Path], object]


@dataclass(frozen=True, slots=True)
class Shape:
    """Files of one size."""

    name: str
    files: int
    size: int

    @property
    def total(self) -> int:
        return self.files * self.size


LARGE, SMALL = Shape("2 x 128 MiB", 2, 128 << 20), Shape("2,000 x 16 KiB", 2_000, 16 << 10)
FEW = Shape("200 x 16 KiB", 200, 16 << 10)  # moto takes milliseconds of a core for each request
CASES = (
    ("memory", LARGE),
    ("memory", SMALL),
    ("delayed", LARGE),
    ("delayed", SMALL),
    ("s3", LARGE),
    ("s3", FEW),
)


@dataclass(frozen=True, slots=True)
class Took:
    """The medians of one way.

    `ratio` is the median of the toolkit's time over this way's in the same turn.
    """

    wall: float
    cpu: float  # of this process and its children, which other load of the host changes least
    ratio: float
    cpu_ratio: float


def fills(source: str, shape: Shape) -> Mapping[str, Took]:
    """Return the times of each way to copy the files.

    A way ends once the files are on the disk.
    """
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        root = Path(name)
        made = _made(root / "source", shape)
        if source == "s3":
            ways = _of_s3(stack.enter_context(moto_server()), made)
        else:
            ways = _of_folder(root, made, delayed=source == "delayed")
        return _medians(ways, root / "targets")


def _of_folder(root: Path, made: Path, *, delayed: bool) -> dict[str, Way]:
    catalog = Catalog(FolderStore(root / "store"))
    manifest = catalog.manifest(add(catalog, made).version)
    if delayed:
        return {
            "toolkit": lambda to: _fill(manifest, _Delayed(catalog.store), to),
            "one after another": lambda to: _delayed_copy(made, to),
        }
    # `cp and check` is a plain copy that is as sure of its bytes as the cache is.
    return {
        "toolkit": lambda to: _fill(manifest, catalog.store, to),
        "cp -r": lambda to: _synced(["cp", "-r", made, to], to),
        "cp -r and check": lambda to: _checked(made, to),
        "shutil.copytree": lambda to: (shutil.copytree(made, to), Disk().sync(to)),
    }


def _of_s3(client: Any, made: Path) -> dict[str, Way]:
    store = S3Store("bench", "data", client=client)
    catalog = Catalog(store)
    manifest = catalog.manifest(add(catalog, made).version)

    def download(to: Path, at_once: int) -> None:
        for folder in {(to / file.path).parent for file in manifest.files}:
            folder.mkdir(parents=True, exist_ok=True)

        def one(file: File) -> None:
            client.download_file("bench", f"data/{object_key(file)}", str(to / file.path))

        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(one, manifest.files))
        Disk().sync(to)

    return {
        "toolkit": lambda to: _fill(manifest, store, to),
        "download_file": lambda to: download(to, 1),
        f"download_file, {AT_ONCE} at once": lambda to: download(to, AT_ONCE),
    }


def _medians(ways: Mapping[str, Way], targets: Path) -> Mapping[str, Took]:
    """Run the ways in turns, so that other load hits all.

    Nothing is deleted before the end. On ext4 without a journal, as on such hosts, creating files
    is slow after many were deleted.
    """
    runs: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for turn in range(REPEATS):
        for number, (way, work) in enumerate(ways.items()):
            targets.mkdir(exist_ok=True)
            runs[way].append(_timed(work, targets / f"{turn}-{number}"))
    ours = runs["toolkit"]

    def ratio(found: list[tuple[float, float]], part: int) -> float:
        return statistics.median(a[part] / b[part] for a, b in zip(ours, found, strict=True))

    return {
        way: Took(
            statistics.median(wall for wall, _ in found),
            statistics.median(cpu for _, cpu in found),
            ratio(found, 0),
            ratio(found, 1),
        )
        for way, found in runs.items()
    }


def _fill(manifest: Manifest, source: Any, to: Path) -> None:
    cache = Cache(to, limit=2 * manifest.footprint)
    opened = contextlib.nullcontext((manifest, source))
    cache.hold(manifest.version, lambda: opened).release()


def _synced(argv: Sequence[str | Path], folder: Path) -> None:
    subprocess.run(argv, check=True)
    Disk().sync(folder)


def _checked(source: Path, to: Path) -> None:
    """Copy the files and check their hashes.

    The hashes are known before, as they are to the cache.
    """
    listing = source.with_suffix(".sha256")
    if not listing.exists():
        with listing.open("wb") as out:
            argv = ["find", ".", "-type", "f", "-exec", "sha256sum", "{}", "+"]
            subprocess.run(argv, cwd=source, stdout=out, check=True)
    _synced(["cp", "-r", source, to], to)
    subprocess.run(["sha256sum", "--quiet", "-c", listing], cwd=to, check=True)


class _Delayed:
    """A distant store, where every open and every read takes time."""

    def __init__(self, store: Any) -> None:
        self._store, self.workers = store, store.workers

    def open(self, file: File) -> Readable:
        return _Far(self._store.open(file))


class _Far:
    def __init__(self, content: Readable) -> None:
        self._content = content

    def pieces(self, span: Span, buffer: memoryview) -> Iterator[Bytes]:
        time.sleep(OPEN_SECONDS)
        for piece in self._content.pieces(span, buffer):
            time.sleep(READ_SECONDS)
            yield piece


def _delayed_copy(source: Path, to: Path) -> None:
    """Copy as cp does, with the same delays."""
    for path in sorted(source.rglob("*.bin")):
        target = to / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        time.sleep(OPEN_SECONDS)
        with path.open("rb") as reading, target.open("wb") as writing:
            while piece := reading.read(BUFFER):
                time.sleep(READ_SECONDS)
                writing.write(piece)
    Disk().sync(to)


def _timed(work: Way, target: Path) -> tuple[float, float]:
    Disk().sync(target.parent)
    began, before = time.monotonic(), _cpu()
    work(target)
    return time.monotonic() - began, _cpu() - before


def _cpu() -> float:
    return sum(os.times()[:4])


def _made(folder: Path, shape: Shape) -> Path:
    block = os.urandom(shape.size)
    for number in range(shape.files):
        path = folder / f"{number % 100:02d}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        # All differ: the store would keep one of equal files.
        path.write_bytes(number.to_bytes(8, "little") + block[8:])
    return folder
