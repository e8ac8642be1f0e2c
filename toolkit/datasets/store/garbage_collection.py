"""Garbage collection: deletes versions that no name leads to, never during an addition.

First it deletes the manifests that no kept version descends from, then the content that
no manifest mentions. Both must be older than a grace time, so that an interrupted
addition can be continued the next day. A kill at any point leaves content without a
manifest, for the next collection.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from toolkit.datasets.errors import DataError
from toolkit.datasets.store.catalog import (
    DERIVATIONS,
    Catalog,
    ancestors,
    manifest_key,
    manifest_versions,
)
from toolkit.datasets.store.gc_markers import ADDING, COLLECTING, STALE_SECONDS, Marker, collecting
from toolkit.datasets.store.port import OBJECTS, WANTED, StoreItem, object_key

GRACE_SECONDS = 24 * 3600.0
_BATCH_SIZE = 500


@dataclass(frozen=True, slots=True)
class Garbage:
    """The objects that a collection deletes."""

    versions: tuple[str, ...]
    derivations: tuple[str, ...]  # keys; their output is deleted now, or was earlier
    objects: tuple[StoreItem, ...]
    kept_versions: int
    kept_bytes: int

    @property
    def size(self) -> int:
        return sum(item.size for item in self.objects)


def find_garbage(catalog: Catalog, *, grace: float = GRACE_SECONDS) -> Garbage:
    """Return what a collection would delete now; changes nothing.

    A manifest that can't be read is an error: nothing is deleted then.
    """
    cutoff = catalog.clock() - grace
    derivations = catalog.derivations()
    versions = dict(manifest_versions(catalog.store))
    young = {version for version, modified in versions.items() if modified >= cutoff}
    named = {item.version for item in catalog.named_versions() if item.version}
    # The ancestors of a young version stay: its lineage is kept complete.
    garbage = versions.keys() - ancestors([*named, *young], derivations)
    kept_keys = _objects_of(catalog, versions.keys() - garbage)
    items = list(catalog.store.list(OBJECTS))
    objects = tuple(item for item in items if item.key not in kept_keys and item.modified < cutoff)
    return Garbage(
        versions=tuple(sorted(garbage)),
        derivations=tuple(
            item.key
            for item in derivations
            if item.at < cutoff and (item.output in garbage or item.output not in versions)
        ),
        objects=objects,
        kept_versions=len(versions) - len(garbage),
        kept_bytes=sum(item.size for item in items) - sum(item.size for item in objects),
    )


def collect_garbage(catalog: Catalog, *, grace: float = GRACE_SECONDS) -> Garbage:
    """Delete what no name leads to; return it.

    Raises StoreBusy, with nothing lost, while an addition runs.
    """
    with collecting(catalog) as marker:
        garbage = find_garbage(catalog, grace=grace)
        _delete(catalog, marker, [f"{DERIVATIONS}{key}.json" for key in garbage.derivations])
        _delete(catalog, marker, [manifest_key(version) for version in garbage.versions])
        _delete(catalog, marker, [item.key for item in garbage.objects])
        catalog.store.delete_stale_uploads(catalog.clock() - max(grace, STALE_SECONDS))
        _delete(catalog, marker, _stale_markers(catalog))
        cutoff = catalog.clock() - max(grace, STALE_SECONDS)
        stale = [item.key for item in catalog.store.list(WANTED) if item.modified < cutoff]
        _delete(catalog, marker, stale)
    return garbage


def _objects_of(catalog: Catalog, versions: Iterable[str]) -> set[str]:
    keys: set[str] = set()
    for version in versions:
        try:
            keys.update(object_key(file) for file in catalog.manifest(version).files)
        except DataError as error:
            # An unreadable manifest may mention this content: without it, it can't be mended.
            raise type(error)(
                f"nothing was deleted: {error.message}", next_step=error.next_step
            ) from error
    return keys


def _delete(catalog: Catalog, marker: Marker, keys: list[str]) -> None:
    for start in range(0, len(keys), _BATCH_SIZE):
        marker.refresh()
        catalog.store.delete(keys[start : start + _BATCH_SIZE])


def _stale_markers(catalog: Catalog) -> list[str]:
    cutoff = catalog.clock() - 2 * STALE_SECONDS
    items = [*catalog.store.list(ADDING), *catalog.store.list(COLLECTING)]
    return [item.key for item in items if item.modified < cutoff]
