"""Filling a dataset cache against plain copies of the same files, on the same disk, in one run."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.training.datasets.add import add
from toolkit.training.datasets.cache import Cache
from toolkit.training.datasets.catalog import Catalog
from toolkit.training.datasets.disk import Disk
from toolkit.training.datasets.folder_store import FolderStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

REPEATS = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """Files of one size."""

    name: str
    files: int
    size: int

    @property
    def total(self) -> int:
        return self.files * self.size


SHAPES = (Shape("2 x 128 MiB", 2, 128 << 20), Shape("2,000 x 16 KiB", 2_000, 16 << 10))


@dataclass(frozen=True, slots=True)
class Took:
    """Medians of one way."""

    wall: float
    cpu: float  # of this process and its children, which the load of others changes least


def fills(shape: Shape) -> Mapping[str, Took]:
    """What each way to get the files took, the content on disk at its end.

    The source is in the page cache for all. `cp and check` is what a plain copy takes that is as
    sure of its bytes as the cache is.
    """
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        source = _made(root / "source", shape)
        catalog = Catalog(FolderStore(root / "store"))
        version = add(catalog, source).version
        ways: Mapping[str, Callable[[Path], object]] = {
            "toolkit": lambda to: _fill(catalog, version, to),
            "cp -r": lambda to: _synced(["cp", "-r", source, to], to),
            "cp -r and check": lambda to: _checked(source, to),
            "shutil.copytree": lambda to: (shutil.copytree(source, to), Disk().sync(to)),
        }
        runs: dict[str, list[Took]] = {way: [] for way in ways}
        for _ in range(REPEATS):  # in turns, so that the load of others hits all alike
            for way, work in ways.items():
                runs[way].append(_timed(work, root / "target"))
    return {
        way: Took(
            statistics.median(one.wall for one in found),
            statistics.median(one.cpu for one in found),
        )
        for way, found in runs.items()
    }


def _fill(catalog: Catalog, version: str, to: Path) -> None:
    manifest = catalog.manifest(version)
    cache = Cache(to, limit=2 * manifest.footprint)
    opened = contextlib.nullcontext((manifest, catalog.store))
    cache.hold(version, lambda: opened).release()


def _synced(argv: Sequence[str | Path], folder: Path) -> None:
    subprocess.run(argv, check=True)
    Disk().sync(folder)


def _checked(source: Path, to: Path) -> None:
    """The hashes are known before, as they are to the cache."""
    listing = source.with_suffix(".sha256")
    if not listing.exists():
        with listing.open("wb") as out:
            argv = ["find", ".", "-type", "f", "-exec", "sha256sum", "{}", "+"]
            subprocess.run(argv, cwd=source, stdout=out, check=True)
    _synced(["cp", "-r", source, to], to)
    subprocess.run(["sha256sum", "--quiet", "-c", listing], cwd=to, check=True)


def _timed(work: Callable[[Path], object], target: Path) -> Took:
    Disk().sync(target.parent)
    began, before = time.monotonic(), _cpu()
    work(target)
    took = Took(time.monotonic() - began, _cpu() - before)
    shutil.rmtree(target)
    return took


def _cpu() -> float:
    return sum(os.times()[:4])


def _made(folder: Path, shape: Shape) -> Path:
    block = os.urandom(shape.size)
    for number in range(shape.files):
        path = folder / f"{number % 100:02d}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        # No two alike: the store would keep one.
        path.write_bytes(number.to_bytes(8, "little") + block[8:])
    return folder
