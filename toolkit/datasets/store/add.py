"""Adds a folder to the store: hashes it, sends missing content, publishes all at the end."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from toolkit.datasets.chunks import Span
from toolkit.datasets.progress import Progress, never_stop
from toolkit.datasets.store.catalog import Catalog, NamedVersion, check_name
from toolkit.datasets.store.gc_markers import Marker, adding
from toolkit.datasets.store.manifest import File
from toolkit.datasets.store.port import Store, Upload
from toolkit.datasets.store.scan import LeftOut, ScanMemory, ScanResult, keep_all, scan
from toolkit.datasets.store.transfer import LocalFile
from toolkit.training.io import parallel

T = TypeVar("T")

# Files that become visible together: one sync for all of them, and little lost by a kill.
_BATCH_FILES, _BATCH_BYTES = 1024, 256 << 20


@dataclass(frozen=True, slots=True)
class AddResult:
    """The result of an addition."""

    version: str
    named: NamedVersion | None
    files: int
    size: int
    hashed_files: int
    sent_bytes: int


def add(
    catalog: Catalog,
    root: Path,
    *,
    name: str | None = None,
    memory: ScanMemory | None = None,
    left_out: LeftOut = keep_all,
    should_stop: Callable[[], bool] = never_stop,
    log: Callable[[str], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> AddResult:
    """Add a folder, under a name if one is given.

    May be repeated after a kill: it continues where it was.
    """
    if name:
        check_name(name)
    scan_result = scan(
        root,
        memory=memory,
        left_out=left_out,
        should_stop=should_stop,
        log=log,
        clock=catalog.clock,
    )
    manifest, hashed_files = scan_result.manifest, scan_result.hashed_files
    with adding(catalog, sleep=sleep) as marker:
        sent_bytes = _ContentUpload(catalog.store, scan_result, should_stop, log).run(marker)
        marker.refresh()
        catalog.put_manifest(manifest)
        named = catalog.set_name(name, manifest.version) if name else None
    files = len(manifest.files)
    return AddResult(manifest.version, named, files, manifest.size, hashed_files, sent_bytes)


class _ContentUpload:
    """The transfer of one dataset's content to the store."""

    def __init__(
        self,
        store: Store,
        scan_result: ScanResult,
        should_stop: Callable[[], bool],
        log: Callable[[str], None] | None,
    ) -> None:
        self._store, self._content_paths = store, scan_result.content_paths
        self._files = list({file.object: file for file in scan_result.manifest.files}.values())
        self._progress = Progress(
            f"adding to {store.url}",
            files=len(self._files),
            size=sum(file.size for file in self._files),
            should_stop=should_stop,
            log=log,
        )
        self._sent_progress = Progress()
        self._uploads: list[Upload] = []
        self._missing_spans: list[tuple[Upload, File, Span]] = []

    def run(self, marker: Marker) -> int:
        """Send the content that the store lacks; return the bytes sent."""
        for batch in _batches(self._files):
            marker.refresh()
            self._uploads, self._missing_spans = [], []
            try:
                self._run_parallel(iter(batch), self._begin_upload)
                self._run_parallel(iter(self._missing_spans), self._send_span)
                self._store.finish(self._uploads)
            finally:
                for upload in self._uploads:
                    upload.abandon()
        return self._sent_progress.done_bytes

    def _begin_upload(self, file: File, _: memoryview) -> None:
        upload = self._store.upload(file)
        missing_spans: Sequence[Span] = ()
        if upload is not None:
            self._uploads.append(upload)
            missing_spans = upload.missing()
            self._missing_spans.extend((upload, file, span) for span in missing_spans)
        self._progress.add(file.size - sum(span.length for span in missing_spans), files=1)

    def _send_span(self, task: tuple[Upload, File, Span], buffer: memoryview) -> None:
        upload, file, span = task
        upload.send(LocalFile(self._content_paths[file.path]), span, buffer)
        self._progress.add(span.length)
        self._sent_progress.add(span.length)

    def _run_parallel(self, tasks: Iterator[T], work: Callable[[T, memoryview], None]) -> None:
        parallel.run(tasks, work, workers=self._store.workers, tick=self._progress.tick)


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
