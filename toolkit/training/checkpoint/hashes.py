"""Make the hashes that identify a file's content, by the names that manifests have for them.

XXH3 of 128 bits finds damage at the speed of memory. It is no seal against an attacker who can
write to the folder, and who could write a manifest too.

Without the package xxhash, as in a container that others made, SHA-256 is used: every Python has
it.
"""

import hashlib
from collections.abc import Callable
from typing import Protocol

from toolkit.training.errors import Unreadable

XXH3, SHA256 = "xxh3-128", "sha256"


class Digest(Protocol):
    """A protocol for the objects of hashlib and of xxhash."""

    def update(self, data: memoryview, /) -> object: ...
    def digest(self) -> bytes: ...
    def hexdigest(self) -> str: ...


def fastest() -> str:
    """Return the name of the hash for files that are written now."""
    return XXH3 if _xxh3() else SHA256


def new(name: str, data: bytes | memoryview = b"") -> Digest:
    """Return a hash by its name.

    Raises Unreadable for one that can't be made here.
    """
    if name == SHA256:
        return hashlib.sha256(data)
    if name != XXH3:
        raise Unreadable(f"this version of the toolkit does not know the hash {name}")
    constructor = _xxh3()
    if constructor is None:
        raise Unreadable(f"the hash {name} needs the Python package xxhash")
    return constructor(data)


def _xxh3() -> Callable[[bytes | memoryview], Digest] | None:
    try:
        from xxhash import xxh3_128
    except ImportError:
        return None
    return xxh3_128
