"""Where datasets are kept: content by its hash, and small records beside it.

    objects/<last two>/<object>  the content of one file
    manifests/<hex>.json         one dataset version
    names/<name>/<number>.json   what a name stood for, and stands for (the highest number)
    derivations/<key>.json       what was made from what, how
    adding/, sweep/              who is adding, who is collecting

A store is a folder on a filesystem that all nodes have, or `s3://bucket/prefix`. Nothing in it has
to be trusted: content is checked against the manifest whenever it is read, and the manifest
against the version.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from toolkit.datasets.chunks import Readable, Span
from toolkit.datasets.store.manifest import File

OBJECTS = "objects/"


@dataclass(frozen=True, slots=True)
class Item:
    """Something in a store."""

    key: str
    size: int
    modified: float  # epoch seconds, by the store's clock


class Upload(Protocol):
    """One file on its way in. `send` may be called from several threads."""

    def missing(self) -> Sequence[Span]:
        """What has not arrived yet; empty when all of it is there from an earlier try."""
        ...

    def send(self, source: Readable, span: Span, buffer: memoryview) -> None:
        """Send one of the missing spans, checked against the manifest. Raises SourceChanged."""
        ...

    def abandon(self) -> None:
        """Let go of it; what has arrived is kept for the next try."""
        ...


class Store(Protocol):
    """Every method raises StoreFailed or StoreUnreachable when the store can't do it."""

    url: str
    workers: int  # how many transfers at once serve it best

    def read(self, key: str) -> bytes | None:
        """A record; None when there is none."""
        ...

    def write(self, key: str, content: bytes) -> None:
        """Put a record, in place of any that is there; durable on return."""
        ...

    def write_new(self, key: str, content: bytes) -> bool:
        """Put a record unless there is one; True for the writer who was first."""
        ...

    def list(self, prefix: str) -> Iterator[Item]:
        """Everything whose key begins so, in no order."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete; what is not there is fine."""
        ...

    def upload(self, file: File) -> Upload | None:
        """Begin, or take up again, the transfer of a file's content; None when it is there."""
        ...

    def finish(self, uploads: Sequence[Upload]) -> None:
        """Make uploads that miss nothing visible; durable on return."""
        ...

    def open(self, file: File) -> Readable:
        """A file's content. Reading raises ContentCorrupt when there is none."""
        ...

    def tidy(self, before: float) -> None:
        """Delete what was begun, never finished and not touched since `before`."""
        ...


def object_key(file: File) -> str:
    """Where a file's content is."""
    return f"{OBJECTS}{file.object[-2:]}/{file.object}"
