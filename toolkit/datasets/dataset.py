"""A dataset in one line of a training script, and the same for warm-up jobs."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from toolkit.datasets import parallel
from toolkit.datasets.cache.cache import Cache, Held, OpenSource
from toolkit.datasets.cache.fill import FolderSource, Source
from toolkit.datasets.errors import CacheFull
from toolkit.datasets.settings import Places, places
from toolkit.datasets.stop import leaving_when_asked
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.manifest import Manifest, is_version
from toolkit.datasets.store.open_store import open_store

_held: dict[str, Held] = {}
_lock = threading.Lock()

Listener = Callable[[Mapping[str, str]], None]
_listeners: list[Listener] = []


def dataset(reference: str) -> Path:
    """Return the read-only folder with the dataset on this node.

    `reference` is `sha256:…`, `name` or `name@number`. The folder stays until this
    process ends. All ranks of a node may call it at once: one of them fills the cache.
    Raises a DataError.

    Submit a fixed version: a plain name may mean another one in the next attempt. If
    the job is asked to stop meanwhile, the script exits here, and the job is requeued.
    """
    with _lock:
        known = _held.get(reference)
        if known is None:
            with leaving_when_asked() as stop:
                known = _held[reference] = take(reference, places(), stop=stop, say=_say)
            if known.filled:
                _say(f"dataset {reference}: cached {known.version} on {os.uname().nodename}")
            for listener in _listeners:
                listener({reference: known.version})
        return known.path


def used() -> dict[str, str]:
    """Return each reference that this process asked for with its version."""
    return {reference: held.version for reference, held in _held.items()}


def fills() -> int:
    """Return how many of its datasets this process fetched itself.

    The others were cached, or another process filled them.
    """
    return sum(held.filled for held in _held.values())


def listen(listener: Listener) -> Callable[[], None]:
    """Call the listener with the datasets taken, now and from now on.

    Returns a function that ends it.
    """
    with _lock:
        listener(used())
        _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def take(
    reference: str,
    where: Places,
    *,
    stop: Callable[[], bool] = parallel.never,
    say: Callable[[str], None] | None = None,
) -> Held:
    """Hold a dataset in this node's cache or the shared one.

    The shared cache serves a dataset that does not fit into this node's. A cached
    version needs no store.
    """
    version = reference
    if not is_version(reference):
        version = Catalog(open_store(where.store_url())).resolve(reference)
    shared = where.shared_cache()

    @contextmanager
    def stored() -> Iterator[tuple[Manifest, Source]]:
        catalog = Catalog(open_store(where.store_url()))
        yield catalog.manifest(version), catalog.store

    if shared is None:
        return where.node_cache().hold(version, stored, stop=stop, say=say)
    return _through(shared, where.node_cache(), version, stored, stop=stop, say=say)


def _through(
    shared: Cache,
    own: Cache,
    version: str,
    stored: OpenSource,
    *,
    stop: Callable[[], bool],
    say: Callable[[str], None] | None,
) -> Held:
    @contextmanager
    def from_shared() -> Iterator[tuple[Manifest, Source]]:
        held = shared.hold(version, stored, stop=stop, say=say)
        try:
            yield held.manifest(), FolderSource(held.path)
        finally:
            held.release()

    try:
        return own.hold(version, from_shared, stop=stop, say=say)
    except CacheFull as error:
        _say(f"{error.message}: reading {version} from {shared.root}")
        return shared.hold(version, stored, stop=stop, say=say)


def _say(text: str) -> None:
    sys.stderr.write(f"[toolkit] {text}\n")
    sys.stderr.flush()
