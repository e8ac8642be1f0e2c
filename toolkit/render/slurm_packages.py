"""Slurm's packages by hash, of which an image is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

DISTRIBUTION, SCHEDMD = "distribution", "schedmd"
_SCHEDMD_PREFIX: Final = "slurm-smd"
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    DISTRIBUTION: ("slurmctld", "slurmdbd", "slurmd", "slurm-client", "slurm-wlm-basic-plugins"),
    SCHEDMD: (
        "slurm-smd",
        "slurm-smd-slurmctld",
        "slurm-smd-slurmdbd",
        "slurm-smd-slurmd",
        "slurm-smd-client",
    ),
}
"""The packages that images install (ansible/group_vars/all.yml), in either packaging: Debian's and
Ubuntu's, or that of the debian folder in SchedMD's release."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package file, and the place that it comes from."""

    name: str  # as dpkg knows it
    file: str
    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class SlurmPackages:
    """The packages of one version for one system and architecture."""

    system: str  # as in /etc/os-release, ID and VERSION_ID: debian-13
    architecture: str  # dpkg's name: amd64
    version: str  # of the packages: 25.11.8-1
    packages: tuple[Package, ...]

    @property
    def series(self) -> str:
        """Return the release series, such as 25.11."""
        return str(SlurmVersion.parse(self.release))

    @property
    def release(self) -> str:
        """Return Slurm's own version, such as 25.11.8."""
        return release_of(self.version)

    @property
    def packaging(self) -> str:
        """Return the packaging, which names the packages."""
        is_schedmds = any(package.name.startswith(_SCHEDMD_PREFIX) for package in self.packages)
        return SCHEDMD if is_schedmds else DISTRIBUTION

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the names of packages that an image needs in vain."""
        names = {package.name for package in self.packages}
        return tuple(name for name in NEEDED[self.packaging] if name not in names)

    def __str__(self) -> str:
        return f"Slurm {self.version} for {self.system} {self.architecture}"


def release_of(version: str) -> str:
    """Return Slurm's version in a package's version, without epoch and revision."""
    return version.rpartition(":")[2].partition("-")[0].partition("+")[0].partition("~")[0]


def package_vars(packages: SlurmPackages) -> dict[str, Any]:
    """Return the playbook's variables.

    The place of a package is not among them: its hash is all that the image depends on.
    """
    return {
        "toolkit_slurm_packaging": packages.packaging,
        "toolkit_slurm_packages": {
            "system": packages.system,
            "architecture": packages.architecture,
            "version": packages.version,
            "files": [{"file": item.file, "sha256": item.sha256} for item in packages.packages],
        },
    }
