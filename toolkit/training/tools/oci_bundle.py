"""Make a job's own OCI bundle from one that `umoci unpack --rootless` made.

    python -m toolkit.training oci-bundle BUNDLE DIGEST FOLDER [SOURCE:DESTINATION[:ro] …]

Slurm's OCI support mounts nothing by itself. An unpacked bundle asks for namespaces that take a
job's processes out of Slurm's sight. The job's bundle is one config.json in FOLDER. It has the
image's files, read only, with the node's devices, processes, users, network and shared filesystem.
https://slurm.schedmd.com/containers.html, https://github.com/opencontainers/runtime-spec
"""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, Self

from toolkit.training.errors import BundleRefused
from toolkit.training.io.durable_files import read_json, write_json

NODE_PATHS: Final = ("/proc", "/sys", "/dev", "/tmp")  # noqa: S108 - the node's own, as outside
READ_ONLY_PATHS: Final = ("/etc/hosts", "/etc/resolv.conf")
SLURM_SPOOL: Final = "/var/run/slurm"
"""Where slurmstepd mounts a task's own spool, besides the mounts of config.json."""
REFUSED_CODE: Final = 93
MAX_PARTS: Final = 255
"""Parts of a path that are followed. A circle of links ends there."""
_MOUNT_FLAGS: Final = (("nosuid", os.ST_NOSUID), ("nodev", os.ST_NODEV), ("noexec", os.ST_NOEXEC))


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the node that the container has too."""

    source: str
    destination: str
    read_only: bool = False
    # The source's own flags. The new mount must have them, too.
    mount_flags: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the mount that SOURCE:DESTINATION[:ro|rw] describes.

        Raises BundleRefused for any other text.
        """
        source, _, rest = text.partition(":")
        destination, _, mode = rest.partition(":")
        absolute = source.startswith("/") and destination.startswith("/")
        if not absolute or mode not in {"", "ro", "rw"}:
            raise BundleRefused(f"mount {text!r} is not SOURCE:DESTINATION[:ro] of absolute paths")
        return cls(source, destination, read_only=mode == "ro")

    def spec(self) -> dict[str, Any]:
        """Return the mount in the runtime's format.

        It is recursive, because /dev has file systems below it.
        """
        return {
            "destination": self.destination,
            "type": "none",
            "source": self.source,
            "options": ["rbind", "ro", *self.mount_flags] if self.read_only else ["rbind"],
        }

    def with_mount_flags(self) -> Self:
        """Return the same mount with its source's mount flags.

        Without privilege no flag can be dropped, and making a mount read only states all of them
        anew. Raises OSError when there is no source.
        """
        flags = os.statvfs(self.source).f_flag
        return replace(self, mount_flags=tuple(name for name, flag in _MOUNT_FLAGS if flags & flag))


def pinned_config(bundle: Path, digest: str) -> dict[str, Any]:
    """Return the bundle's config.json.

    Raises BundleRefused unless umoci unpacked the bundle from the image `digest`.
    """
    config = read_json(bundle / "config.json")
    if config is None:
        raise BundleRefused(f"{bundle} is no OCI bundle: it has no config.json")
    umoci = read_json(bundle / "umoci.json") or {}
    descriptors = (umoci.get("from_descriptor_path") or {}).get("descriptor_walk") or []
    if digest not in {step.get("digest") for step in descriptors}:
        raise BundleRefused(
            f"the bundle {bundle} is not of the pinned image, or its umoci.json is missing;"
            " `umoci unpack --rootless` writes that file"
        )
    return config


def job_config(
    config: Mapping[str, Any],
    bundle: Path,
    mounts: Iterable[Mount],
    *,
    cwd: str,
    uid: int,
    gid: int,
) -> dict[str, Any]:
    """Return the image's config.json, made fit for a job's step. Pure.

    Root in the container is the user outside, with the user's rights. Without newuidmap only one id
    can be mapped, and runc wants it to be 0. Only users and mounts have namespaces of their own. So
    Slurm sees the processes, and ranks reach each other over the node's network.
    """
    process = config.get("process") or {}
    return {
        "ociVersion": config.get("ociVersion", "1.0.2"),
        "root": {"path": str(bundle / _rootfs(config)), "readonly": True},
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/true"],  # Slurm puts the step's own here
            "env": process.get("env") or [],
            "cwd": cwd,
            "noNewPrivileges": True,
        },
        "mounts": [mount.spec() for mount in mounts],
        "linux": {
            "namespaces": [{"type": "user"}, {"type": "mount"}],
            "uidMappings": [{"containerID": 0, "hostID": uid, "size": 1}],
            "gidMappings": [{"containerID": 0, "hostID": gid, "size": 1}],
        },
    }


def _rootfs(config: Mapping[str, Any]) -> Path:
    return Path((config.get("root") or {}).get("path") or "rootfs")


def make_mount_points(rootfs: Path, mounts: Iterable[Mount]) -> None:
    """Make a step's mount points before any node starts the step.

    runc makes those that the image lacks, on every node at once. On a shared filesystem the second
    node's runc then fails with "file exists". A rootfs that can't be written is left as it is: runc
    says what it lacks. May be repeated.
    """
    folders = [(mount.destination, Path(mount.source).is_dir()) for mount in mounts]
    for destination, is_folder in [*folders, (SLURM_SPOOL, True)]:
        path = inside(rootfs, destination)
        with suppress(OSError):
            (path if is_folder else path.parent).mkdir(parents=True, exist_ok=True)
            if not is_folder:
                path.touch(exist_ok=True)


def inside(rootfs: Path, destination: str) -> Path:
    """Return a container's path as the host sees it.

    Links are followed as in the container: an absolute one begins at the rootfs, and `..` never
    leaves it.
    """
    path, parts = rootfs, list(reversed(PurePosixPath(destination).parts))
    for _ in range(MAX_PARTS):
        if not parts:
            break
        part = parts.pop()
        if part == "/":
            path = rootfs
        elif part == "..":
            path = path if path == rootfs else path.parent
        elif (path / part).is_symlink():
            parts += reversed((path / part).readlink().parts)
        else:
            path /= part
    return path


def node_mounts() -> list[Mount]:
    """Return the mounts that every step has, in a container or not."""
    writable = [Mount(path, path) for path in NODE_PATHS]
    return [*writable, *(Mount(path, path, read_only=True) for path in READ_ONLY_PATHS)]


def write_bundle(bundle: Path, digest: str, folder: Path, mounts: Iterable[Mount]) -> None:
    """Write FOLDER/config.json, whole or not at all.

    Raises BundleRefused or OSError.
    """
    bundle = bundle.resolve()
    config = pinned_config(bundle, digest)
    all_mounts = [*node_mounts(), *mounts]
    missing = [mount.source for mount in all_mounts if not Path(mount.source).exists()]
    if missing:
        raise BundleRefused(f"the node has no {', '.join(missing)} to mount")
    all_mounts = [mount.with_mount_flags() for mount in all_mounts]
    make_mount_points(bundle / _rootfs(config), all_mounts)
    folder.mkdir(parents=True, exist_ok=True)
    step_config = job_config(
        config, bundle, all_mounts, cwd=str(Path.cwd()), uid=os.getuid(), gid=os.getgid()
    )
    write_json(folder / "config.json", step_config)


def main(argv: list[str] | None = None) -> int:
    """Write the bundle and return the exit code.

    0: made. 93: refused, with the reason on stderr.
    """
    parser = argparse.ArgumentParser(
        prog="python -m toolkit.training oci-bundle", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("digest")
    parser.add_argument("folder", type=Path)
    parser.add_argument("mounts", nargs="*", metavar="SOURCE:DESTINATION[:ro]")
    options = parser.parse_args(argv)
    try:
        mounts = [Mount.parse(text) for text in options.mounts]
        write_bundle(options.bundle, options.digest, options.folder, mounts)
    except (BundleRefused, OSError) as error:
        print(f"[toolkit] cannot start: {error}", file=sys.stderr)  # noqa: T201 - a program's answer
        return REFUSED_CODE
    return 0
