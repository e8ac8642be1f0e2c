"""A process that holds a cache's dataset and can be killed.

fill_process.py STORE CACHE REF LIMIT [--fatal N --when WHEN | --halt N FILE] [--keep]

- --fatal: send SIGKILL to itself at file operation N.
- --halt: make FILE at file operation N, and wait for a kill.
- --keep: print the folder, and hold it until standard input ends.

The process prints `full`, or `filled` or `found` with the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.fakes.disk import MortalDisk
from toolkit.datasets import chunks
from toolkit.datasets.cache.cache import Cache
from toolkit.datasets.errors import CacheFull
from toolkit.datasets.filesystem import Disk
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore

SMALL_CHUNK = 4096


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("cache", type=Path)
    parser.add_argument("reference")
    parser.add_argument("limit", type=int)
    parser.add_argument("--fatal", type=int)
    parser.add_argument("--when", default="before")
    parser.add_argument("--halt", nargs=2)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    chunks.CHUNK = SMALL_CHUNK

    def halt() -> None:
        Path(options.halt[1]).touch()
        time.sleep(600)

    disk = Disk()
    if options.fatal is not None:
        disk = MortalDisk(options.fatal, options.when, die)
    elif options.halt:
        disk = MortalDisk(int(options.halt[0]), "halfway", halt)
    catalog = Catalog(FolderStore(options.store))
    version = catalog.resolve(options.reference)
    cache = Cache(options.cache, limit=options.limit, disk=disk)
    try:
        held = cache.hold(
            version, lambda: contextlib.nullcontext((catalog.manifest(version), catalog.store))
        )
    except CacheFull:
        sys.stdout.write("full\n")
        return
    sys.stdout.write(f"{'filled' if held.filled else 'found'} {held.path}\n")
    sys.stdout.flush()
    if options.keep:
        sys.stdin.read()


if __name__ == "__main__":
    main()
