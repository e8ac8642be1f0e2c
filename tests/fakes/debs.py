"""Packages that dpkg-deb built: real .deb files with nothing to install in them."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from toolkit.render.slurm_packages import NEEDED, SCHEDMD

if TYPE_CHECKING:
    from pathlib import Path

SCHEDMD_NAMES = NEEDED[SCHEDMD]


def make_deb(folder: Path, name: str, version: str, architecture: str = "amd64") -> Path:
    """Build one package and return its file."""
    tree = folder / f"{name}.tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n"
        "Maintainer: Nobody <nobody@example.com>\nDescription: a test's package\n"
    )
    path = folder / f"{name}_{version.rpartition(':')[2]}_{architecture}.deb"
    argv = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(path)]
    subprocess.run(argv, check=True, capture_output=True)
    return path


def make_debs(folder: Path, version: str, names: tuple[str, ...] = SCHEDMD_NAMES) -> Path:
    """Build a folder with a package of each name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        make_deb(folder, name, version)
    return folder
