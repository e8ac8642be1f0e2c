"""The protocol of a store: content by its hash, and small records beside it.

    objects/<last two>/<object>  the content of one file
    manifests/<hex>.json         one dataset version
    names/<name>/<number>.json   a name's versions; the highest number is the current one
    derivations/<key>.json       how a version was made from others
    adding/, sweep/              markers of running additions and collections
    wanted/<key>                 in S3: the record at <key> was written again, so it is young

Jobs may add to a store in S3, and neither replace nor delete (docs/adr/0022).

A store is a folder on a filesystem that all nodes mount, or `s3://bucket/prefix`. Nothing in it
has to be trusted: content is checked against the manifest whenever it is read, and the manifest
against the version.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from toolkit.datasets.chunks import Readable, Span
from toolkit.datasets.store.manifest import File

OBJECTS, WANTED = "objects/", "wanted/"


@dataclass(frozen=True, slots=True)
class StoreItem:
    """An object or record in a store."""

    key: str
    size: int
    modified: float  # epoch seconds, by the store's clock


class Upload(Protocol):
    """A file on its way to the store. `send` may be called from several threads."""

    def missing(self) -> Sequence[Span]:
        """Return the spans that have not arrived yet.

        Empty when all of the file arrived in an earlier try.
        """
        ...

    def send(self, source: Readable, span: Span, buffer: memoryview) -> None:
        """Send a missing span, checked against the manifest. Raises SourceChanged."""
        ...

    def abandon(self) -> None:
        """Release the upload; arrived parts are kept for the next try."""
        ...


class Store(Protocol):
    """A store. Every method raises StoreFailed or StoreUnreachable when the store can't do it."""

    url: str
    workers: int  # the best number of transfers at once

    def read(self, key: str) -> bytes | None:
        """Read a record; None when there is none."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """Write or replace a record; durable on return."""
        ...

    def write_new(self, key: str, content: bytes) -> bool:
        """Write a record unless it exists; return whether it was written."""
        ...

    def write_same(self, key: str, content: bytes) -> None:
        """Write a record that never has other content.

        One that exists stays as it is, and becomes young for garbage collection.
        """
        ...

    def list(self, prefix: str) -> Iterator[StoreItem]:
        """Yield every item whose key begins with `prefix`, in no order."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the keys; missing ones are ignored."""
        ...

    def upload(self, file: File) -> Upload | None:
        """Begin or resume a file's transfer; None when it is stored."""
        ...

    def finish(self, uploads: Sequence[Upload]) -> None:
        """Make complete uploads visible; durable on return."""
        ...

    def open(self, file: File) -> Readable:
        """Return a file's content. Reading raises ContentCorrupt when there is none."""
        ...

    def delete_stale_uploads(self, cutoff: float) -> None:
        """Delete unfinished uploads that were not touched since `cutoff`."""
        ...


def object_key(file: File) -> str:
    """Return the key of a file's content."""
    return f"{OBJECTS}{file.object[-2:]}/{file.object}"
