"""Fetch Slurm's packages into FOLDER, compare their hashes, and make it a source for apt.

Stdin holds JSON: system, architecture, version, and files with file and sha256 each. The packages lie
in the images bucket under their hashes. Nothing is left in FOLDER unless all of them are right.
Otherwise the exit code is 1, and stderr says which one is not.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurmplugins.cloud.client import client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ORIGIN = "slurm-packages"


class Refused(Exception):
    """A package, or this system, is not what the lock file names."""


def system_of(os_release: str) -> str:
    """Return the system's name from the text of /etc/os-release, such as debian-13."""
    values = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    return "-".join(values.get(key, "").strip('"') for key in ("ID", "VERSION_ID"))


def check_system(wanted: Mapping[str, Any], system: str, architecture: str) -> None:
    """Refuse packages of another system or architecture."""
    here, locked = f"{system} {architecture}", f"{wanted['system']} {wanted['architecture']}"
    if here != locked:
        raise Refused(f"the lock file's Slurm packages are for {locked}, and the base image is {here}")


def check_hash(file: str, data: bytes, sha256: str) -> None:
    """Refuse a package whose content is another one."""
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise Refused(
            f"{file} is refused, and nothing was installed: its SHA-256 is {digest},"
            f" and the lock file has {sha256}; delete packages/{sha256}/{file} in the images bucket"
        )


def fetch(wanted: Mapping[str, Any], read: Callable[[str], bytes], folder: Path) -> None:
    """Write all packages into the folder, each checked."""
    for item in wanted["files"]:
        data = read(f"packages/{item['sha256']}/{item['file']}")
        check_hash(item["file"], data, item["sha256"])
        (folder / item["file"]).write_bytes(data)


def index_entry(path: Path, version: str) -> str:
    """Return the package's paragraph of apt's index.

    Refuses a package of another version than the lock file's.
    """
    control = subprocess.run(
        ["dpkg-deb", "--field", str(path)], capture_output=True, text=True, check=True
    ).stdout
    if f"\nVersion: {version}\n" not in f"\n{control}":
        raise Refused(f"{path.name} is not of version {version}, which the lock file has")
    data = path.read_bytes()
    return (
        f"{control.rstrip()}\nFilename: ./{path.name}\nSize: {len(data)}\n"
        f"SHA256: {hashlib.sha256(data).hexdigest()}\n"
    )


def write_index(folder: Path, version: str) -> None:
    """Write apt's index of the folder."""
    entries = [index_entry(path, version) for path in sorted(folder.glob("*.deb"))]
    index = "\n".join(entries).encode()
    (folder / "Packages").write_bytes(index)
    (folder / "Release").write_text(
        f"Origin: {ORIGIN}\nDate: {formatdate(usegmt=True)}\n"
        f"SHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} Packages\n"
    )


def s3_reader(environment: Mapping[str, str]) -> Callable[[str], bytes]:
    """Return a function that reads an object of the images bucket."""
    s3 = client(
        "s3", environment["AWS_DEFAULT_REGION"], environment.get("AWS_ENDPOINT_URL") or None
    )
    bucket = environment["TOOLKIT_IMAGES_BUCKET"]

    def read(key: str) -> bytes:
        try:
            data: bytes = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        except s3.exceptions.NoSuchKey as error:
            raise Refused(f"s3://{bucket}/{key} is missing: run `toolkit image packages add`") from error
        return data

    return read


def main() -> None:
    folder, wanted = Path(sys.argv[1]), json.load(sys.stdin)
    architecture = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    ).stdout.strip()
    draft = folder.with_name(f"{folder.name}.new")
    try:
        check_system(wanted, system_of(Path("/etc/os-release").read_text()), architecture)
        for path in (draft, folder):
            shutil.rmtree(path, ignore_errors=True)
        draft.mkdir(parents=True)
        fetch(wanted, s3_reader(os.environ), draft)
        write_index(draft, wanted["version"])
        draft.rename(folder)
    except Refused as error:
        shutil.rmtree(draft, ignore_errors=True)
        sys.exit(str(error))


if __name__ == "__main__":
    main()
