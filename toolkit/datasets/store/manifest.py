"""A dataset's manifest: its files by relative path, size and content, in one canonical form.

The version of a dataset is `sha256:` and the hash of these bytes, so equal folders have
equal versions on every machine. Times, owners and modes are not part of it; empty
folders neither.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from toolkit.datasets import chunks
from toolkit.datasets.errors import ManifestInvalid, NameRefused

KIND = "toolkit-dataset-1"
BLOCK = 4096  # allocation unit of filesystems; a small file takes at least this
LONGEST_PATH, LONGEST_PART = 3800, 255

_HEX = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"sha256:([0-9a-f]{64})")
# Controls, halves of surrogate pairs, line and paragraph separators: they disguise a name.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class File:
    """A file of a dataset."""

    path: str  # relative to the dataset's folder
    size: int
    chunks: tuple[str, ...]  # sha256 of each chunk

    @property
    def object(self) -> str:
        """Return the name that its content is stored under."""
        return chunks.object_name(self.chunks)


@dataclass(frozen=True)
class Manifest:
    """The files of a dataset, ordered by path. Made by `make_manifest` or `parse`."""

    files: tuple[File, ...]

    @cached_property
    def encoded(self) -> bytes:
        """Return the canonical form.

        One line of ASCII JSON with sorted keys, files sorted by path.
        """
        files = [
            {"chunks": list(file.chunks), "path": file.path, "size": file.size}
            for file in self.files
        ]
        value = {"files": files, "kind": KIND}
        return (json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n").encode()

    @cached_property
    def version(self) -> str:
        return version_of(self.encoded)

    @property
    def size(self) -> int:
        """Return the bytes in all files."""
        return sum(file.size for file in self.files)

    @property
    def footprint(self) -> int:
        """Return the bytes of a copy on disk, in whole blocks.

        The manifest beside it is included.
        """
        blocks = sum(-(-file.size // BLOCK) + 1 for file in self.files)
        return (blocks + -(-len(self.encoded) // BLOCK)) * BLOCK


def make_manifest(files: Iterable[File]) -> Manifest:
    """Return the manifest of these files.

    Raises NameRefused or ManifestInvalid for files that can't be in one.
    """
    ordered = tuple(sorted(files, key=lambda file: file.path.encode("utf-8", "surrogatepass")))
    folders: set[str] = set()
    for file in ordered:
        check_path(file.path)
        _check_content(file)
        folders.update(_parents(file.path))
    paths = {file.path for file in ordered}
    if len(paths) != len(ordered):
        raise ManifestInvalid("a path is listed twice")
    if conflicting_paths := paths & folders:
        raise ManifestInvalid(f"{min(conflicting_paths)!r} is a file and a folder")
    return Manifest(ordered)


def parse(encoded: bytes, version: str = "") -> Manifest:
    """Parse a manifest's canonical bytes and check its version.

    An empty `version` is not checked. Raises ManifestInvalid.
    """
    if version and version_of(encoded) != version:
        raise ManifestInvalid(f"the manifest stored as {version} has another hash")
    try:
        value = json.loads(encoded)
        parsed_manifest = make_manifest(_file(item) for item in value["files"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ManifestInvalid(f"not a manifest: {type(error).__name__}: {error}") from error
    if parsed_manifest.encoded != encoded:
        raise ManifestInvalid("the manifest is not in canonical form")
    return parsed_manifest


def version_of(encoded: bytes) -> str:
    return f"sha256:{hashlib.sha256(encoded).hexdigest()}"


def is_version(text: str) -> bool:
    """Return whether the text is `sha256:` and 64 hexadecimal digits."""
    return _VERSION.fullmatch(text) is not None


def hex_of(version: str) -> str:
    """Return the digits of a version, which name files and folders.

    Raises NameRefused.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        raise NameRefused(f"{version!r} is not a version: sha256: and 64 hexadecimal digits")
    return match[1]


def check_path(path: str) -> None:
    """Raise NameRefused unless `path` is a file below the dataset's folder.

    It must be so on any machine. The error shows the path with escapes, never raw: such
    names are made to be printed.
    """
    if len(path.encode("utf-8", "surrogatepass")) > LONGEST_PATH:
        raise NameRefused(f"path too long: {path[:80]!a}…")
    is_plain = path.isascii() and path.isprintable()
    if not is_plain and any(unicodedata.category(letter) in _REFUSED_CATEGORIES for letter in path):
        raise NameRefused(
            f"control character, or not UTF-8, in {path!a}", next_step="rename the file"
        )
    for part in path.split("/"):
        if part in ("", ".", "..") or len(part.encode()) > LONGEST_PART:
            raise NameRefused(f"{path!a} is not a plain relative path")


def _parents(path: str) -> Iterable[str]:
    slash = path.find("/")
    while slash >= 0:
        yield path[:slash]
        slash = path.find("/", slash + 1)


def _check_content(file: File) -> None:
    is_integer = isinstance(file.size, int) and not isinstance(file.size, bool)
    if not is_integer or file.size < 0 or len(file.chunks) != chunks.count(file.size):
        raise ManifestInvalid(f"{file.path!r}: its size does not fit its number of chunks")
    if not all(_HEX.fullmatch(chunk) for chunk in file.chunks):
        raise ManifestInvalid(f"{file.path!r}: a chunk's hash is not a sha256")


def _file(item: Mapping[str, Any]) -> File:
    if not isinstance(item["path"], str):
        raise TypeError("a path must be text")
    return File(item["path"], item["size"], tuple(item["chunks"]))
