"""A dataset in one line of a training script, and the same for warm-up jobs."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from toolkit.datasets.cache.cache import Cache, HeldDataset, OpenSource
from toolkit.datasets.cache.fill import FolderSource, Source
from toolkit.datasets.errors import CacheFull
from toolkit.datasets.progress import never_stop
from toolkit.datasets.settings import DatasetSettings, read_settings
from toolkit.datasets.stop import exit_on_stop_request
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.manifest import Manifest, is_version
from toolkit.datasets.store.open_store import open_store

_held_datasets: dict[str, HeldDataset] = {}
_lock = threading.Lock()

Listener = Callable[[Mapping[str, str]], None]
_listeners: list[Listener] = []


def dataset(reference: str) -> Path:
    """Return the read-only folder with the dataset on this node.

    `reference` is `sha256:…`, `name` or `name@number`. The folder stays until this
    process ends. All ranks of a node may call it at once: one of them fills the cache.
    Raises a DataError.

    Submit a fixed version: a plain name may mean another one in the next attempt. If
    a stop is requested meanwhile, the script exits here, and Slurm requeues the job.
    """
    with _lock:
        held_dataset = _held_datasets.get(reference)
        if held_dataset is None:
            with exit_on_stop_request() as should_stop:
                held_dataset = _held_datasets[reference] = hold_dataset(
                    reference, read_settings(), should_stop=should_stop, log=_log
                )
            if held_dataset.filled:
                _log(f"dataset {reference}: cached {held_dataset.version} on {os.uname().nodename}")
            for listener in _listeners:
                listener({reference: held_dataset.version})
        return held_dataset.path


def used_versions() -> dict[str, str]:
    """Return each reference that this process uses, with its version."""
    return {reference: item.version for reference, item in _held_datasets.items()}


def fill_count() -> int:
    """Return how many of its datasets this process fetched itself.

    The others were cached, or another process filled them.
    """
    return sum(item.filled for item in _held_datasets.values())


def add_listener(listener: Listener) -> Callable[[], None]:
    """Call the listener with the datasets in use, now and later.

    Returns a function that ends it.
    """
    with _lock:
        listener(used_versions())
        _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def hold_dataset(
    reference: str,
    settings: DatasetSettings,
    *,
    should_stop: Callable[[], bool] = never_stop,
    log: Callable[[str], None] | None = None,
) -> HeldDataset:
    """Hold a dataset in this node's cache or the shared one.

    The shared cache serves a dataset that does not fit into this node's. A cached
    version needs no store.
    """
    version = reference
    if not is_version(reference):
        version = Catalog(open_store(settings.store_url())).resolve(reference)
    shared_cache = settings.shared_cache()

    @contextmanager
    def open_stored() -> Iterator[tuple[Manifest, Source]]:
        catalog = Catalog(open_store(settings.store_url()))
        yield catalog.manifest(version), catalog.store

    if shared_cache is None:
        return settings.node_cache().hold(version, open_stored, should_stop=should_stop, log=log)
    return _hold_through_shared_cache(
        shared_cache, settings.node_cache(), version, open_stored, should_stop=should_stop, log=log
    )


def _hold_through_shared_cache(
    shared_cache: Cache,
    node_cache: Cache,
    version: str,
    open_stored: OpenSource,
    *,
    should_stop: Callable[[], bool],
    log: Callable[[str], None] | None,
) -> HeldDataset:
    @contextmanager
    def open_shared() -> Iterator[tuple[Manifest, Source]]:
        held_dataset = shared_cache.hold(version, open_stored, should_stop=should_stop, log=log)
        try:
            yield held_dataset.manifest(), FolderSource(held_dataset.path)
        finally:
            held_dataset.release()

    try:
        return node_cache.hold(version, open_shared, should_stop=should_stop, log=log)
    except CacheFull as error:
        _log(f"{error.message}; reading {version} from the shared cache {shared_cache.root}")
        return shared_cache.hold(version, open_stored, should_stop=should_stop, log=log)


def _log(text: str) -> None:
    sys.stderr.write(f"[toolkit] {text}\n")
    sys.stderr.flush()
