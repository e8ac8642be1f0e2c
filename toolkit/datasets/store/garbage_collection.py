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
from toolkit.datasets.store.gc_markers import ADDING, STALE_SECONDS, SWEEP, Marker, sweeping
from toolkit.datasets.store.port import OBJECTS, Item, object_key

GRACE_SECONDS = 24 * 3600.0
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Doomed:
    """The objects that a collection deletes."""

    versions: tuple[str, ...]
    derivations: tuple[str, ...]  # keys; their output is deleted, or gone already
    objects: tuple[Item, ...]
    kept_versions: int
    kept_bytes: int

    @property
    def size(self) -> int:
        return sum(item.size for item in self.objects)


def plan(catalog: Catalog, *, grace: float = GRACE_SECONDS) -> Doomed:
    """Return what a collection would delete now; changes nothing.

    A manifest that can't be read is an error: nothing is deleted then.
    """
    before = catalog.clock() - grace
    derivations = catalog.derivations()
    roots = [one.version for one in catalog.named() if one.version]
    kept = ancestors(roots, derivations)
    versions = dict(manifest_versions(catalog.store))
    doomed = {version for version, at in versions.items() if version not in kept and at < before}
    # The ancestors of a young version stay: its lineage is kept complete.
    doomed -= ancestors([version for version in versions if version not in doomed], derivations)
    wanted = _objects_of(catalog, versions.keys() - doomed)
    items = list(catalog.store.list(OBJECTS))
    loose = tuple(item for item in items if item.key not in wanted and item.modified < before)
    return Doomed(
        versions=tuple(sorted(doomed)),
        derivations=tuple(
            one.key
            for one in derivations
            if one.at < before and (one.output in doomed or one.output not in versions)
        ),
        objects=loose,
        kept_versions=len(versions) - len(doomed),
        kept_bytes=sum(item.size for item in items) - sum(item.size for item in loose),
    )


def sweep(catalog: Catalog, *, grace: float = GRACE_SECONDS) -> Doomed:
    """Delete what no name leads to; return it.

    Raises StoreBusy, with nothing lost, while an addition runs.
    """
    with sweeping(catalog) as marker:
        doomed = plan(catalog, grace=grace)
        _delete(catalog, marker, [f"{DERIVATIONS}{key}.json" for key in doomed.derivations])
        _delete(catalog, marker, [manifest_key(version) for version in doomed.versions])
        _delete(catalog, marker, [item.key for item in doomed.objects])
        catalog.store.tidy(catalog.clock() - max(grace, STALE_SECONDS))
        _delete(catalog, marker, _dead_markers(catalog))
    return doomed


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
    for first in range(0, len(keys), _AT_ONCE):
        marker.refresh()
        catalog.store.delete(keys[first : first + _AT_ONCE])


def _dead_markers(catalog: Catalog) -> list[str]:
    before = catalog.clock() - 2 * STALE_SECONDS
    items = [*catalog.store.list(ADDING), *catalog.store.list(SWEEP)]
    return [item.key for item in items if item.modified < before]
