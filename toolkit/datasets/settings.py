"""Settings: where the store and the caches are, from the environment, else from the cluster.

| variable | else, in training.json | meaning |
|---|---|---|
| TOOLKIT_DATA_STORE | data_store | a folder or s3://bucket/prefix; else /shared/datasets |
| TOOLKIT_DATA_CACHE | | this node's cache folder |
| | data_cache | where a user's own cache folder is made; else, or where there is none, /var/tmp |
| TOOLKIT_DATA_CACHE_GIB | data_cache_gib | its limit; else 80 % of the free disk |
| TOOLKIT_DATA_SHARED_CACHE | | a cache that all nodes mount, in front of S3; else none |
| TOOLKIT_DATA_SHARED_CACHE_GIB | | its limit; else 80 % of the free disk |
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.datasets.cache.cache import Cache
from toolkit.datasets.errors import CacheUnusable, StoreUnset
from toolkit.training.io.cluster_info import site_facts

_DISK_SHARE = 0.8
_GIB = 1 << 30
_DEFAULT_STORE = Path("/shared/datasets")
_DEFAULT_CACHE_PARENT = Path("/var/tmp")  # noqa: S108  # the folder made in it is checked
_PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class DatasetSettings:
    """The store and the caches of this process."""

    store: str | None
    cache_folder: Path
    cache_limit: int | None = None  # bytes; None: 80 % of the free disk
    shared_cache_folder: Path | None = None
    shared_cache_limit: int | None = None  # bytes; None: 80 % of the free disk

    def store_url(self) -> str:
        """Return the store's URL. Raises StoreUnset."""
        if self.store is None:
            raise StoreUnset(
                "no setting names the store of datasets",
                next_step="set TOOLKIT_DATA_STORE to a shared folder or to s3://bucket/prefix",
            )
        return self.store

    def node_cache(self) -> Cache:
        """Return this node's cache."""
        return _cache(self.cache_folder, self.cache_limit)

    def shared_cache(self) -> Cache | None:
        folder = self.shared_cache_folder
        return _cache(folder, self.shared_cache_limit) if folder else None


def read_settings(
    environment: Mapping[str, str] = os.environ, *, default_store: Path = _DEFAULT_STORE
) -> DatasetSettings:
    """Read this process's settings."""
    reader = _SettingsReader(environment, site_facts(environment))
    store = reader.text("TOOLKIT_DATA_STORE", "data_store")
    if store is None and default_store.parent.is_dir():
        store = str(default_store)
    shared = environment.get("TOOLKIT_DATA_SHARED_CACHE")
    own = environment.get("TOOLKIT_DATA_CACHE")
    return DatasetSettings(
        store=store,
        cache_folder=Path(own) if own else _own_cache(reader.text("", "data_cache")),
        cache_limit=reader.gib("TOOLKIT_DATA_CACHE_GIB", "data_cache_gib"),
        shared_cache_folder=Path(shared) if shared else None,
        shared_cache_limit=reader.gib("TOOLKIT_DATA_SHARED_CACHE_GIB"),
    )


def _own_cache(root: str | None) -> Path:
    """Make the user's own cache folder, or refuse another user's.

    A folder that another user prepared must not be used: cached content is trusted.
    """
    parent = Path(root) if root and Path(root).is_dir() else _DEFAULT_CACHE_PARENT
    path = parent / f"toolkit-data-{os.getuid()}"
    try:
        path.mkdir(mode=_PRIVATE, exist_ok=True)
        facts = path.lstat()
    except OSError as error:
        raise CacheUnusable(f"can't make the cache folder {path}: {error.strerror}") from error
    if facts.st_uid != os.getuid() or not path.is_dir() or path.is_symlink():
        raise CacheUnusable(
            f"the cache folder {path} belongs to another user",
            next_step="set TOOLKIT_DATA_CACHE to another folder",
        )
    return path


def _cache(root: Path, limit: int | None) -> Cache:
    if limit is not None:
        return Cache(root, limit=limit)
    cache = Cache(root, limit=0)
    cache.limit = int(_DISK_SHARE * (shutil.disk_usage(root).free + cache.used_bytes))
    return cache


class _SettingsReader:
    def __init__(self, environment: Mapping[str, str], site: Mapping[str, Any]) -> None:
        self._environment, self._site = environment, site

    def text(self, variable: str, key: str = "") -> str | None:
        value = self._environment.get(variable) or self._site.get(key)
        return str(value) if value else None

    def gib(self, variable: str, key: str = "") -> int | None:
        value = self.text(variable, key)
        try:
            return int(float(value) * _GIB) if value else None
        except ValueError as error:
            raise CacheUnusable(f"{variable} is not a number of GiB: {value!a}") from error
