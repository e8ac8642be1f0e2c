"""Reads Debian packages: what dpkg knows of each, and the hash of its file."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.errors import SlurmPackagesUnfit

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

READ_SECONDS: Final = 30.0
_FIELDS: Final = ("Package", "Version", "Architecture")
_PIECE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Deb:
    """A package file on this computer."""

    path: Path
    name: str
    version: str
    architecture: str  # or "all"
    sha256: str

    @property
    def file(self) -> str:
        """Return the file's name by dpkg's rule, which leaves the epoch out."""
        version = self.version.rpartition(":")[2]
        return f"{self.name}_{version}_{self.architecture}.deb"


def read_folder(folder: Path) -> tuple[Deb, ...]:
    """Return the packages in a folder by name, without debug symbols.

    Raises SlurmPackagesUnfit for a file that is no package.
    """
    paths = sorted(path for path in folder.glob("*.deb") if "-dbgsym_" not in path.name)
    return tuple(sorted(map(read, paths), key=lambda item: item.name))


def read(path: Path) -> Deb:
    """Read one package.

    Raises SlurmPackagesUnfit.
    """
    values = _control(path)
    if any(not values.get(name) for name in _FIELDS):
        raise SlurmPackagesUnfit(f"{path} is no Debian package")
    name, version, architecture = (values[name] for name in _FIELDS)
    return Deb(path, name, version, architecture, sha256_of(path))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _control(path: Path) -> dict[str, str]:
    # dpkg-deb and no parser of ours: Ubuntu packs with zstd, which Python's library does not know.
    argv = ["dpkg-deb", "--field", str(path), *_FIELDS]
    try:
        process = subprocess.run(
            argv, capture_output=True, text=True, check=True, timeout=READ_SECONDS
        )
    except FileNotFoundError as error:
        raise SlurmPackagesUnfit(
            "this computer has no dpkg-deb, which reads packages",
            next_step="add the packages on Debian or Ubuntu, such as where they were built",
        ) from error
    except subprocess.SubprocessError as error:
        detail = str(getattr(error, "stderr", "") or error).strip()
        raise SlurmPackagesUnfit(f"{path} is no Debian package: {detail}") from error
    return dict(_pairs(process.stdout.splitlines()))


def _pairs(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        name, separator, value = line.partition(": ")
        if separator:
            yield name, value.strip()
