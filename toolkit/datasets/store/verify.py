"""Verifies a dataset in the store."""

import threading
from collections.abc import Callable

from toolkit.datasets import chunks
from toolkit.datasets.errors import ContentCorrupt
from toolkit.datasets.progress import Progress
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.manifest import File
from toolkit.training.io import parallel


def find_damaged_content(
    catalog: Catalog, version: str, *, log: Callable[[str], None] | None = None
) -> list[str]:
    """Return the paths whose stored content is missing or damaged, in order.

    Raises ManifestInvalid if the manifest itself is damaged.
    """
    manifest, store = catalog.manifest(version), catalog.store
    damaged_paths: set[str] = set()
    lock = threading.Lock()
    progress = Progress("verifying", files=len(manifest.files), size=manifest.size, log=log)

    def work(task: tuple[File, chunks.Span], buffer: memoryview) -> None:
        file, span = task
        expected_hash = file.chunks[span.offset // chunks.CHUNK]
        try:
            is_intact = chunks.digest(store.open(file).pieces(span, buffer)) == expected_hash
        except ContentCorrupt:
            is_intact = False
        with lock:
            if not is_intact:
                damaged_paths.add(file.path)
        progress.add(span.length, files=int(span.offset == 0))

    tasks = ((file, span) for file in manifest.files for span in chunks.spans(file.size))
    parallel.run(tasks, work, workers=store.workers, tick=progress.tick)
    return sorted(damaged_paths)
