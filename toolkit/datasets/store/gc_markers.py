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

ADDING, SWEEP = "adding/", "sweep/"
STALE_SECONDS = 3600.0
REFRESH_SECONDS = 300.0
PATIENCE_SECONDS = 600.0
_LOOK_SECONDS = 2.0


class Marker:
    """The marker of one addition or collection, refreshed while the work lasts."""

    def __init__(self, catalog: Catalog, prefix: str) -> None:
        self._catalog = catalog
        self._key = f"{prefix}{uuid.uuid4().hex}.json"
        self._said = catalog.clock()
        self.say()

    def say(self) -> None:
        self._catalog.store.write(self._key, b"{}\n")
        self._said = self._catalog.clock()

    def refresh(self) -> None:
        """Write the marker again if it is getting old.

        Call it often, and before the work becomes visible. Raises StoreBusy after a
        long sleep: the other side may have taken this process for dead.
        """
        silent = self._catalog.clock() - self._said
        if silent > STALE_SECONDS / 2:
            raise StoreBusy(
                f"this process was asleep for {silent / 60:.0f} minutes",
                next_step="run it again: it goes on where it was",
            )
        if silent > REFRESH_SECONDS:
            self.say()

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
    waited = 0.0
    while True:
        marker = Marker(catalog, ADDING)
        if not _at_it(catalog, SWEEP):
            break
        marker.withdraw()
        if waited >= patience:
            raise StoreBusy("garbage collection is running", next_step="try again later")
        sleep(_LOOK_SECONDS)
        waited += _LOOK_SECONDS
    try:
        yield marker
    finally:
        marker.withdraw()


@contextmanager
def sweeping(catalog: Catalog) -> Iterator[Marker]:
    """Keep additions away while the block runs.

    Raises StoreBusy if one is running.
    """
    marker = Marker(catalog, SWEEP)
    try:
        if _at_it(catalog, ADDING):
            raise StoreBusy("somebody is adding a dataset", next_step="try again later")
        yield marker
    finally:
        marker.withdraw()


def _at_it(catalog: Catalog, prefix: str) -> bool:
    since = catalog.clock() - STALE_SECONDS
    return any(item.modified >= since for item in catalog.store.list(prefix))
