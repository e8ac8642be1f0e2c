"""Markers by which additions and collections exclude each other, without a lock service.

Each side writes its marker first, and only then looks for the other's. Stores answer a
list with everything written before it, so at least one of the two sees the other.
Additions do not exclude each other. A killed process's marker is respected for at most
`STALE_SECONDS`.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from toolkit.datasets.errors import StoreBusy
from toolkit.datasets.store.catalog import Catalog

ADDING, COLLECTING = "adding/", "sweep/"
STALE_SECONDS = 3600.0
REFRESH_SECONDS = 300.0
PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 2.0


class Marker:
    """The marker of one addition or collection, refreshed while the work lasts."""

    def __init__(self, catalog: Catalog, prefix: str) -> None:
        self._catalog = catalog
        self._key = f"{prefix}{uuid.uuid4().hex}.json"
        self._written_at = catalog.clock()
        self.write()

    def write(self) -> None:
        self._catalog.store.write(self._key, b"{}\n")
        self._written_at = self._catalog.clock()

    def refresh(self) -> None:
        """Write the marker again if it is getting old.

        Call it often, and before the work becomes visible. Raises StoreBusy after a
        long sleep: the other side may have ignored this marker as stale.
        """
        age = self._catalog.clock() - self._written_at
        if age > STALE_SECONDS / 2:
            raise StoreBusy(
                f"this process was asleep for {age / 60:.0f} minutes",
                next_step="run the command again: it continues",
            )
        if age > REFRESH_SECONDS:
            self.write()

    def withdraw(self) -> None:
        self._catalog.store.delete([self._key])


@contextmanager
def adding(
    catalog: Catalog,
    *,
    sleep: Callable[[float], None] = time.sleep,
    patience: float = PATIENCE_SECONDS,
) -> Iterator[Marker]:
    """Keep garbage collection away while the block runs.

    Waits for a running collection; raises StoreBusy if it takes longer than `patience`
    seconds.
    """
    waited_seconds = 0.0
    while True:
        marker = Marker(catalog, ADDING)
        if not _has_fresh_marker(catalog, COLLECTING):
            break
        marker.withdraw()
        if waited_seconds >= patience:
            raise StoreBusy("garbage collection is running", next_step="try again later")
        sleep(_POLL_SECONDS)
        waited_seconds += _POLL_SECONDS
    try:
        yield marker
    finally:
        marker.withdraw()


@contextmanager
def collecting(catalog: Catalog) -> Iterator[Marker]:
    """Keep additions away while the block runs.

    Raises StoreBusy if one is running.
    """
    marker = Marker(catalog, COLLECTING)
    try:
        if _has_fresh_marker(catalog, ADDING):
            raise StoreBusy("another process is adding a dataset", next_step="try again later")
        yield marker
    finally:
        marker.withdraw()


def _has_fresh_marker(catalog: Catalog, prefix: str) -> bool:
    cutoff = catalog.clock() - STALE_SECONDS
    return any(item.modified >= cutoff for item in catalog.store.list(prefix))
