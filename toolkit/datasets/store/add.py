"""Adds a folder to the store: hashes it, sends missing content, publishes all at the end."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from toolkit.datasets import parallel
from toolkit.datasets.chunks import Span
from toolkit.datasets.parallel import Progress
from toolkit.datasets.store.catalog import Catalog, Named, check_name
from toolkit.datasets.store.gc_markers import Marker, adding
from toolkit.datasets.store.manifest import File
from toolkit.datasets.store.port import Store, Upload
from toolkit.datasets.store.scan import Memory, Scanned, scan
from toolkit.datasets.store.transfer import LocalFile

T = TypeVar("T")

# Files that become visible together: one sync for all of them, and little lost by a kill.
_BATCH_FILES, _BATCH_BYTES = 1024, 256 << 20


@dataclass(frozen=True, slots=True)
class Added:
    """The result of an addition."""

    version: str
    named: Named | None
    files: int
    size: int
    hashed_files: int
    sent_bytes: int


def add(
    catalog: Catalog,
    root: Path,
    *,
    name: str | None = None,
    memory: Memory | None = None,
    stop: Callable[[], bool] = parallel.never,
    say: Callable[[str], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Added:
    """Add a folder, under a name if one is given.

    May be repeated after a kill: it continues where it was.
    """
    if name:
        check_name(name)
    scanned = scan(root, memory=memory, stop=stop, say=say, clock=catalog.clock)
    made = scanned.manifest
    with adding(catalog, sleep=sleep) as marker:
        sent = _Sending(catalog.store, scanned, stop, say).run(marker)
        marker.refresh()
        catalog.put_manifest(made)
        named = catalog.name(name, made.version) if name else None
    return Added(made.version, named, len(made.files), made.size, scanned.hashed, sent)


class _Sending:
    """The transfer of one dataset's content to the store."""

    def __init__(
        self,
        store: Store,
        scanned: Scanned,
        stop: Callable[[], bool],
        say: Callable[[str], None] | None,
    ) -> None:
        self._store, self._places, self._stop = store, scanned.places, stop
        self._files = list({file.object: file for file in scanned.manifest.files}.values())
        self._progress = Progress(
            f"adding to {store.url}",
            files=len(self._files),
            size=sum(file.size for file in self._files),
            say=say,
        )
        self._sent = Progress()
        self._uploads: list[Upload] = []
        self._missing: list[tuple[Upload, File, Span]] = []

    def run(self, marker: Marker) -> int:
        """Send the content that the store lacks; return the bytes sent."""
        for batch in _batches(self._files):
            marker.refresh()
            self._uploads, self._missing = [], []
            try:
                self._spread(iter(batch), self._begin)
                self._spread(iter(self._missing), self._send)
                self._store.finish(self._uploads)
            finally:
                for upload in self._uploads:
                    upload.abandon()
        return self._sent.done_bytes

    def _begin(self, file: File, _: memoryview) -> None:
        upload = self._store.upload(file)
        missing: Sequence[Span] = ()
        if upload is not None:
            self._uploads.append(upload)
            missing = upload.missing()
            self._missing.extend((upload, file, span) for span in missing)
        self._progress.add(file.size - sum(span.length for span in missing), files=1)

    def _send(self, task: tuple[Upload, File, Span], buffer: memoryview) -> None:
        upload, file, span = task
        upload.send(LocalFile(self._places[file.path]), span, buffer)
        self._progress.add(span.length)
        self._sent.add(span.length)

    def _spread(self, tasks: Iterator[T], work: Callable[[T, memoryview], None]) -> None:
        parallel.run(
            tasks, work, workers=self._store.workers, stop=self._stop, progress=self._progress
        )


def _batches(files: list[File]) -> Iterator[list[File]]:
    batch: list[File] = []
    size = 0
    for file in files:
        batch.append(file)
        size += file.size
        if len(batch) >= _BATCH_FILES or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
