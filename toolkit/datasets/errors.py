"""What can go wrong with datasets, under the one tree in `toolkit.errors`.

* ToolkitError
  * DataError                     data-failed               1
    - NameRefused                 data-name-refused         2
    - ManifestInvalid             data-manifest-invalid     1
    - SourceChanged               data-source-changed       1
    - ContentCorrupt              data-corrupt              1
    - DatasetUnknown              data-unknown              1
    - StoreUnset                  data-store-unset          2
    - StoreFailed                 data-store-failed         1
      · StoreUnreachable          data-store-unreachable    1
    - StoreBusy                   data-store-busy           1
    - CacheFull                   data-cache-full           1
      · CacheTooSmall             data-cache-too-small      1
    - CacheUnusable               data-cache-unusable       1
    - BuildFailed                 data-build-failed         1
    - Stopped                     data-stopped              85
"""
# ruff: noqa: N818  # as in toolkit.errors

from toolkit.errors import ToolkitError


class DataError(ToolkitError):
    """A dataset can't be added, read or derived."""

    reason = "data-failed"


class NameRefused(DataError):
    """A file or dataset has a name that is not safe to write down again elsewhere."""

    reason = "data-name-refused"
    exit_code = 2


class ManifestInvalid(DataError):
    """The bytes are not a manifest in canonical form, or not the one that was asked for."""

    reason = "data-manifest-invalid"


class SourceChanged(DataError):
    """A file changed while it was being added."""

    reason = "data-source-changed"


class ContentCorrupt(DataError):
    """Stored bytes are not those that were added."""

    reason = "data-corrupt"


class DatasetUnknown(DataError):
    """No such name or version in the store."""

    reason = "data-unknown"


class StoreUnset(DataError):
    """Nothing says where datasets are kept."""

    reason = "data-store-unset"
    exit_code = 2


class StoreFailed(DataError):
    """The store refused, or what it needs is not installed."""

    reason = "data-store-failed"


class StoreUnreachable(StoreFailed):
    """The store does not answer, or not now: it may later."""

    reason = "data-store-unreachable"


class StoreBusy(DataError):
    """Garbage collection and an addition exclude each other for a moment, or one was cut short."""

    reason = "data-store-busy"


class CacheFull(DataError):
    """The dataset does not fit beside what running jobs hold."""

    reason = "data-cache-full"


class CacheTooSmall(CacheFull):
    """The dataset is larger than all that the cache may hold."""

    reason = "data-cache-too-small"


class CacheUnusable(DataError):
    """The cache folder belongs to somebody else, or can't be written."""

    reason = "data-cache-unusable"


class BuildFailed(DataError):
    """The step that makes a derived dataset failed; nothing of it was kept."""

    reason = "data-build-failed"


class Stopped(DataError):
    """A stop request came; what is done so far is kept for the next attempt."""

    reason = "data-stopped"
    exit_code = 85
