"""The rows of the lock file that name Slurm's packages. Pure.

There is one row for a system and an architecture.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from toolkit.config.base_image import base_system
from toolkit.errors import SlurmPackagesMissing
from toolkit.render.slurm_packages import Package, SlurmPackages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.config import ClusterConfig

ARCHITECTURE: Final = "amd64"
"""The architecture of every image: EC2 calls it x86_64."""
ADD: Final = "`toolkit image packages add DIR` writes them"

FILE: Final = re.compile(r"[a-z0-9][A-Za-z0-9.+~_-]{1,200}\.deb", re.ASCII)
_PATTERNS: Final = {
    "system": re.compile(r"[a-z][a-z0-9]*-[0-9.]+", re.ASCII),
    "architecture": re.compile(r"[a-z0-9]+", re.ASCII),
    "version": re.compile(r"(\d+:)?\d{2}\.\d{2}\.\d+[A-Za-z0-9.+~-]*", re.ASCII),
    "name": re.compile(r"[a-z0-9][a-z0-9.+-]+", re.ASCII),
    "file": FILE,
    "url": re.compile(r"(s3|https)://[A-Za-z0-9._/:%+~-]+", re.ASCII),
    "sha256": re.compile(r"[0-9a-f]{64}", re.ASCII),
}


def parse(items: object) -> tuple[SlurmPackages, ...]:
    """Parse the rows.

    Raises ValueError with the problem, TypeError or KeyError for another shape.
    """
    if not isinstance(items, list):
        raise TypeError("slurm_packages is not a list")
    rows = tuple(
        SlurmPackages(
            system=_text(item, "system"),
            architecture=_text(item, "architecture"),
            version=_text(item, "version"),
            packages=tuple(
                Package(**{key: _text(entry, key) for key in ("name", "file", "url", "sha256")})
                for entry in item["packages"]
            ),
        )
        for item in items
    )
    for row in rows:
        if row.missing:
            raise ValueError(f"{row} lacks {', '.join(row.missing)}")
    return rows


def _text(item: Any, key: str) -> str:
    value = item[key]
    if not isinstance(value, str) or not _PATTERNS[key].fullmatch(value):
        raise ValueError(f"{value!r} is no {key} of a package")
    return value


def row_for(
    config: ClusterConfig, rows: Iterable[SlurmPackages], source: str
) -> SlurmPackages | None:
    """Return the packages of this configuration, None for the system's own.

    Raises SlurmPackagesMissing where cluster.yaml wants packages that the lock file lacks.
    """
    if config.slurm.packages == "system":
        return None
    system = base_system(config.images.base.name, config.images.base.system)
    row = next((row for row in rows if is_for(row, system)), None)
    if row is None:
        raise SlurmPackagesMissing(
            f"{source} has no Slurm packages for {system} {ARCHITECTURE}",
            next_step=f"{ADD}; or set slurm.packages to system",
        )
    if row.series != config.slurm.version:
        raise SlurmPackagesMissing(
            f"{source} has {row}, and cluster.yaml has slurm.version {config.slurm.version}",
            next_step=f'set slurm.version to "{row.series}", or add packages of that version',
        )
    return row


def is_for(row: SlurmPackages, system: str) -> bool:
    """Return whether images on this system are built of the row."""
    return (row.system, row.architecture) == (system, ARCHITECTURE)
