"""The hashes a file is known by, under the names that manifests have for them.

XXH3 of 128 bits tells damage at the speed of memory. It is no seal against somebody who may write
to the folder, and who could write a manifest as well. Where its package is not installed, as in a
container of somebody else's making, SHA-256 is what every Python has.
"""

import hashlib
from collections.abc import Callable
from typing import Protocol

XXH3, SHA256 = "xxh3-128", "sha256"


class Digest(Protocol):
    """What hashlib's objects and xxhash's have in common."""

    def update(self, data: memoryview, /) -> object: ...
    def digest(self) -> bytes: ...
    def hexdigest(self) -> str: ...


class Unreadable(Exception):  # noqa: N818  # reads as what it is at every raise and except
    """What is there may be good, and can't be told to be by this Python."""


def fastest() -> str:
    """The name of the hash for what is written now."""
    return XXH3 if _xxh3() else SHA256


def new(name: str, data: bytes | memoryview = b"") -> Digest:
    """A hash by its name. Raises Unreadable for one that can't be made here."""
    if name == SHA256:
        return hashlib.sha256(data)
    if name != XXH3:
        raise Unreadable(f"{name} is a hash that this version does not know")
    made = _xxh3()
    if made is None:
        raise Unreadable(f"{name} needs the Python package xxhash")
    return made(data)


def _xxh3() -> Callable[[bytes | memoryview], Digest] | None:
    try:
        from xxhash import xxh3_128
    except ImportError:
        return None
    return xxh3_128
