"""Turns a folder of Slurm's packages into a row of the lock file, or says why it can't. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.deploy import package_lock
from toolkit.errors import SlurmPackagesUnfit
from toolkit.render import options
from toolkit.render.slurm_packages import Package, SlurmPackages, release_of
from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from toolkit.deploy.deb import Deb


def lock_row(
    debs: Sequence[Deb], folder: str, system: str, url_of: Callable[[Deb], str]
) -> SlurmPackages:
    """Return the row.

    Raises SlurmPackagesUnfit with every problem of the folder.
    """
    if not debs:
        raise SlurmPackagesUnfit(f"{folder} has no .deb files")
    problems = [*_own_problems(debs), *_set_problems(debs)]
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise SlurmPackagesUnfit(f"the packages in {folder} can't be used:\n{lines}")
    row = SlurmPackages(
        system=system,
        architecture=package_lock.ARCHITECTURE,
        version=debs[0].version,
        packages=tuple(Package(deb.name, deb.file, url_of(deb), deb.sha256) for deb in debs),
    )
    if row.missing:
        raise SlurmPackagesUnfit(
            f"{folder} lacks {', '.join(row.missing)}",
            next_step="give the folder with all packages of one build",
        )
    return row


def _own_problems(debs: Iterable[Deb]) -> Iterable[str]:
    for deb in debs:
        if deb.path.name != deb.file:
            yield f"{deb.path.name}: dpkg calls it {deb.file}"
        elif not package_lock.FILE.fullmatch(deb.file):
            yield f"{deb.path.name}: not the name of a package file"
        if deb.architecture not in {package_lock.ARCHITECTURE, "all"}:
            yield f"{deb.path.name}: for {deb.architecture}; images are {package_lock.ARCHITECTURE}"


def _set_problems(debs: Sequence[Deb]) -> Iterable[str]:
    versions = sorted({deb.version for deb in debs})
    names = [deb.name for deb in debs]
    yield from (
        f"{name} is there twice" for name in sorted({n for n in names if names.count(n) > 1})
    )
    if len(versions) > 1:
        yield f"packages of {len(versions)} versions: {', '.join(versions)}"
        return
    try:
        series = SlurmVersion.parse(release_of(versions[0]))
        options.check_range(series)
    except ValueError as error:
        yield str(error)
