"""Errors of datasets, a branch of the tree in `toolkit.errors`.

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
    - FolderTaken                 data-folder-taken         1
    - FolderFull                  data-folder-full          1
    - BuildFailed                 data-build-failed         1
    - DataStopped                 data-stopped              85
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
    """The bytes are not a canonical manifest, or not the requested one."""

    reason = "data-manifest-invalid"


class SourceChanged(DataError):
    """A file changed while it was being added."""

    reason = "data-source-changed"


class ContentCorrupt(DataError):
    """Stored bytes are not those that were added."""

    reason = "data-corrupt"


class DatasetUnknown(DataError):
    """The store has no such name or version."""

    reason = "data-unknown"


class StoreUnset(DataError):
    """No setting names the store."""

    reason = "data-store-unset"
    exit_code = 2


class StoreFailed(DataError):
    """The store refused, or a package that it needs is not installed."""

    reason = "data-store-failed"


class StoreUnreachable(StoreFailed):
    """The store does not answer now; it may later."""

    reason = "data-store-unreachable"


class StoreBusy(DataError):
    """Garbage collection or an addition is running, or one was cut short.

    The two exclude each other.
    """

    reason = "data-store-busy"


class CacheFull(DataError):
    """The dataset does not fit beside the datasets that running jobs hold."""

    reason = "data-cache-full"


class CacheTooSmall(CacheFull):
    """The dataset is larger than the cache's limit."""

    reason = "data-cache-too-small"


class CacheUnusable(DataError):
    """The cache folder belongs to another user, or can't be written."""

    reason = "data-cache-unusable"


class FolderTaken(DataError):
    """The folder to copy to has other content."""

    reason = "data-folder-taken"


class FolderFull(DataError):
    """The filesystem of the folder to copy to is full; what was copied is kept."""

    reason = "data-folder-full"


class BuildFailed(DataError):
    """The step that makes a derived dataset failed; nothing of it was kept."""

    reason = "data-build-failed"


class DataStopped(DataError):
    """A stop request came; the work done so far is kept for the next attempt."""

    reason = "data-stopped"
    exit_code = 85
