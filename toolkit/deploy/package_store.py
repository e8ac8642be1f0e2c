"""Keeps Slurm's packages where builders find them: the images bucket, each under its hash.

The store is where a package comes from. Builders read the images bucket alone, so that
their role needs no right to another.
"""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Final

from toolkit.deploy import names
from toolkit.deploy.storage import Bucket
from toolkit.errors import SlurmPackagesMissing, SlurmPackagesUnfit

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.deploy.deb import Deb
    from toolkit.deploy.session import Clients
    from toolkit.output import Phase
    from toolkit.render.slurm_packages import Package, SlurmPackages

FETCH_SECONDS: Final = 120.0
S3: Final = "s3://"


def url_of(config: ClusterConfig, images_bucket: str, deb: Deb) -> str:
    """Return the address of a package in the store.

    In S3 its hash is part of it, so another content never takes its place.
    """
    store = config.images.package_store
    if store is not None and not store.startswith(S3):
        return f"{store}/{deb.file}"
    root = store or f"{S3}{images_bucket}"
    return f"{root}/{names.package(deb.sha256, deb.file)}"


class PackageStore:
    """Copies packages between this computer, the store and the images bucket."""

    def __init__(self, clients: Clients, bucket: Bucket) -> None:
        self._clients = clients
        self._bucket = bucket  # of image builds

    def add(self, deb: Deb, url: str) -> bool:
        """Bring a package to the store; return whether it was missing.

        A store that is no bucket is filled by somebody else: its package is compared.
        Raises SlurmPackagesMissing, or SlurmPackagesUnfit where another content is there.
        """
        if not url.startswith(S3):
            check(fetch_https(url), deb.sha256, url)
            return False
        bucket, key = self._place(url)
        if bucket.has(key):
            return False
        bucket.write(key, deb.path.read_bytes())
        return True

    def cache(self, packages: SlurmPackages, phase: Phase) -> int:
        """Bring the packages to the images bucket; return how many were missing.

        Raises SlurmPackagesMissing, or SlurmPackagesUnfit for one whose hash differs.
        """
        copied = 0
        for number, package in enumerate(packages.packages, start=1):
            key = names.package(package.sha256, package.file)
            if self._bucket.has(key):
                continue
            phase.update(package.file, done=number, total=len(packages.packages))
            data = self._fetch(package)
            check(data, package.sha256, package.url)
            self._bucket.write(key, data)
            copied += 1
        return copied

    def _fetch(self, package: Package) -> bytes:
        if not package.url.startswith(S3):
            return fetch_https(package.url)
        bucket, key = self._place(package.url)
        data = bucket.read(key)
        if data is None:
            raise _missing(package.url)
        return data

    def _place(self, url: str) -> tuple[Bucket, str]:
        name, _, key = url.removeprefix(S3).partition("/")
        if name == self._bucket.name:
            return self._bucket, key
        return Bucket(self._clients.client("s3"), name), key


def fetch_https(url: str) -> bytes:
    """Return what an https:// address has.

    Raises SlurmPackagesMissing.
    """
    try:
        with urllib.request.urlopen(url, timeout=FETCH_SECONDS) as answer:  # noqa: S310 - https:// alone
            data: bytes = answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise _missing(url, f": {error}") from error
    return data


def check(data: bytes, sha256: str, url: str) -> None:
    """Raise SlurmPackagesUnfit unless the data has this hash."""
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise SlurmPackagesUnfit(
            f"{url} is refused: its SHA-256 is {digest}, and the lock file has {sha256}",
            next_step="find out who replaced it; `toolkit image packages add DIR` locks another",
        )


def _missing(url: str, problem: str = "") -> SlurmPackagesMissing:
    return SlurmPackagesMissing(
        f"{url}, which the lock file names, can't be fetched{problem}",
        next_step="put it there again, or `toolkit image packages add DIR`",
    )
