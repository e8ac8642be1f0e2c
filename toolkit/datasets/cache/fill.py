"""Fills a folder with a dataset's files.

Several files are written at once, large ones in ranges; all are hashed while they are
written. Files of an earlier, unfinished try are checked and kept if they are right.
"""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from toolkit.datasets import chunks
from toolkit.datasets.chunks import Readable, Span
from toolkit.datasets.errors import ContentCorrupt
from toolkit.datasets.filesystem import WRITABLE, Disk
from toolkit.datasets.progress import Progress, never_stop
from toolkit.datasets.store.manifest import File, Manifest
from toolkit.datasets.store.transfer import LocalFile, write_chunk
from toolkit.training.io import parallel


class Source(Protocol):
    """A place to read content from: a store, or another cache."""

    workers: int

    def open(self, file: File) -> Readable: ...


class FolderSource:
    """A dataset in a folder with the layout of a cache entry's `data`."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.workers = parallel.STORE_WORKERS

    def open(self, file: File) -> Readable:
        return LocalFile(f"{self._folder}/{file.path}")


def fill(
    manifest: Manifest,
    folder: Path,
    source: Source,
    *,
    disk: Disk,
    title: str = "filling the cache",
    should_stop: Callable[[], bool] = never_stop,
    log: Callable[[str], None] | None = None,
) -> int:
    """Write the missing files into the folder; return the bytes fetched.

    The files are not yet synced to disk on return. Raises DataStopped, and ContentCorrupt
    when the source's bytes differ from the manifest.
    """
    progress = Progress(
        title,
        files=len(manifest.files),
        size=manifest.size,
        should_stop=should_stop,
        log=log,
    )
    for name in sorted({file.path.rpartition("/")[0] for file in manifest.files} | {""}):
        disk.make_folder(folder / name)
    filling = _Filling(folder, source, disk, progress)
    parallel.run(filling.tasks(manifest), filling.work, workers=source.workers, tick=progress.tick)
    return filling.fetch_progress.done_bytes


def find_damaged_files(manifest: Manifest, folder: Path) -> list[str]:
    """Return the paths whose content differs from the manifest."""
    damaged_paths: list[str] = []
    progress = Progress("verifying", files=len(manifest.files), size=manifest.size)

    def work(file: File, buffer: memoryview) -> None:
        if not _matches(f"{folder}/{file.path}", file, buffer):
            damaged_paths.append(file.path)
        progress.add(file.size, files=1)

    parallel.run(iter(manifest.files), work, workers=parallel.local_workers(), tick=progress.tick)
    return sorted(damaged_paths)


class _Filling:
    """A fill. Paths are `str`: building `Path` objects took longer than copying small files."""

    def __init__(self, folder: Path, source: Source, disk: Disk, progress: Progress) -> None:
        self._folder, self._source, self._disk = str(folder), source, disk
        self._progress, self.fetch_progress = progress, Progress()
        self._lock = threading.Lock()
        self._missing_chunks: dict[str, int] = {}

    def tasks(self, manifest: Manifest) -> Iterator[tuple[File, Span]]:
        """Yield every chunk of every file.

        Runs in one thread at a time, ahead of the threads that copy.
        """
        for file in manifest.files:
            if len(file.chunks) > 1:
                self._create_large_file(file)
            for span in chunks.spans(file.size):
                yield file, span

    def work(self, task: tuple[File, Span], buffer: memoryview) -> None:
        file, span = task
        if len(file.chunks) == 1:
            self._fill_small_file(file, span, buffer)
        else:
            self._fill_chunk(file, span, buffer)
        self._progress.add(span.length, files=int(len(file.chunks) == 1))

    def _fill_small_file(self, file: File, span: Span, buffer: memoryview) -> None:
        path = f"{self._folder}/{file.path}"
        try:
            descriptor = self._disk.create(path)
        except FileExistsError:
            if _matches(path, file, buffer):
                return
            self._disk.remove(path)
            descriptor = self._disk.create(path)
        try:
            self._fetch_chunk(file, span, descriptor, buffer)
        finally:
            os.close(descriptor)

    def _create_large_file(self, file: File) -> None:
        """Create a large file at its full size for out-of-order parts."""
        path = f"{self._folder}/{file.path}"
        self._missing_chunks[file.path] = len(file.chunks)
        try:
            descriptor = self._disk.create(path, mode=WRITABLE)
        except FileExistsError:
            self._disk.unprotect(path)
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_size != file.size:
                self._disk.resize(descriptor, file.size)
        finally:
            os.close(descriptor)

    def _fill_chunk(self, file: File, span: Span, buffer: memoryview) -> None:
        path = f"{self._folder}/{file.path}"
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if not self._has_chunk(path, descriptor, file, span, buffer):
                self._fetch_chunk(file, span, descriptor, buffer)
        finally:
            os.close(descriptor)
        with self._lock:
            self._missing_chunks[file.path] -= 1
            is_last = self._missing_chunks[file.path] == 0
        if is_last:
            self._disk.protect(path)
            self._progress.add(0, files=1)

    def _has_chunk(
        self, path: str, descriptor: int, file: File, span: Span, buffer: memoryview
    ) -> bool:
        """Return whether an earlier try wrote this part, judged by its hash.

        A hole in the file is not read.
        """
        try:
            data_offset = os.lseek(descriptor, span.offset, os.SEEK_DATA)
        except OSError:  # the rest of the file is a hole
            return False
        if data_offset >= span.offset + span.length:
            return False
        expected_hash = file.chunks[span.offset // chunks.CHUNK]
        return chunks.digest(LocalFile(path).pieces(span, buffer)) == expected_hash

    def _fetch_chunk(self, file: File, span: Span, descriptor: int, buffer: memoryview) -> None:
        expected_hash = file.chunks[span.offset // chunks.CHUNK]
        pieces = self._source.open(file).pieces(span, buffer)
        if not write_chunk(pieces, descriptor, span, expected_hash, self._disk):
            raise ContentCorrupt(
                f"the stored content of {file.path} is not what was added",
                next_step="`toolkit data verify` lists all damaged files; add the dataset again",
            )
        self.fetch_progress.add(span.length)


def _matches(path: str, file: File, buffer: memoryview) -> bool:
    try:
        if os.lstat(path).st_size != file.size:
            return False
        content = LocalFile(path)
        return all(
            chunks.digest(content.pieces(span, buffer)) == expected_hash
            for span, expected_hash in zip(chunks.spans(file.size), file.chunks, strict=True)
        )
    except OSError:
        return False
