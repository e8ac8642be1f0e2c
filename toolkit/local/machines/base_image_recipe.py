"""The content of a base tree: packages, files, units switched off. The digest covers all."""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolkit.local.machines.host_settings import HostSettings
    from toolkit.local.machines.python_copy import Interpreter

SUITE = "trixie"
IMAGE_NAME = "debian-13-amd64-local"
_VERSION = 1  # raise it when the way of building changes, not only what is listed here

# What debootstrap installs beyond the minimum: apt needs it for https mirrors.
FIRST_PACKAGES = ("ca-certificates",)
PACKAGES = (
    # acl, sudo and python3-apt are what Ansible's become and apt need on a machine.
    "acl", "ansible-core", "cloud-init", "curl", "dbus", "iproute2", "iputils-ping", "less",
    "nano-tiny", "procps", "python3", "python3-apt", "python3-boto3", "sudo", "systemd",
    "systemd-sysv", "unzip",
)  # fmt: skip
# What the standard library of the copied Python is linked with.
LIBRARIES = (
    "libbz2-1.0", "libcrypt1", "libexpat1", "libffi8", "libgdbm6t64", "liblzma5", "libncursesw6",
    "libreadline8t64", "libsqlite3-0", "libssl3t64", "libuuid1", "zlib1g",
)  # fmt: skip
# Of no use in a container that lives for minutes, and each costs part of a second at boot.
MASKED_UNITS = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "apt-daily.service", "apt-daily-upgrade.service",
    "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer", "logrotate.timer",
    "systemd-tmpfiles-clean.timer", "getty.target", "console-getty.service", "getty@.service",
    "container-getty@.service", "getty-static.service", "systemd-pstore.service",
    "systemd-networkd.service", "systemd-networkd-wait-online.service", "systemd-resolved.service",
    "systemd-timesyncd.service", "systemd-hwdb-update.service", "systemd-firstboot.service",
    "ldconfig.service", "systemd-journal-catalog-update.service", "systemd-update-done.service",
    "tmp.mount", "dev-hugepages.mount", "sys-fs-fuse-connections.mount",
    "cloud-init-hotplugd.socket", "cloud-init-hotplugd.service",
    # From the host, read-only in here, or of hardware that a container has none of.
    "systemd-modules-load.service", "systemd-sysctl.service", "systemd-random-seed.service",
    "systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount", "kmod-static-nodes.service",
)  # fmt: skip

_DATASOURCE = "usr/lib/python3/dist-packages/cloudinit/sources/DataSourceEc2Toolkit.py"
_FILES = {  # target in the tree -> (our file, mode)
    "usr/sbin/mount.lustre": ("mount.lustre", 0o755),
    _DATASOURCE: ("DataSourceEc2Toolkit.py.in", 0o644),
    "etc/cloud/cloud.cfg.d/90-toolkit.cfg": ("cloud.cfg", 0o644),
    "etc/systemd/journald.conf.d/50-toolkit.conf": ("journald.conf", 0o644),
    "etc/dpkg/dpkg.cfg.d/toolkit": ("dpkg.cfg", 0o644),
    "etc/apt/apt.conf.d/50toolkit": ("apt.conf", 0o644),
    "usr/sbin/policy-rc.d": ("policy-rc.d", 0o755),  # taken out again when the tree is done
}


def files() -> dict[str, tuple[bytes, int]]:
    """Return our own files by path: (content, mode).

    Paths are relative to the tree's root.
    """
    place = resources.files("toolkit.local.machines") / "tree"
    return {
        target: ((place / source).read_bytes(), mode) for target, (source, mode) in _FILES.items()
    }


def sources(host: HostSettings) -> str:
    """Return the tree's apt sources, from the mirrors the host uses."""
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    entries = (
        (host.mirror, f"{SUITE} {SUITE}-updates"),
        (host.security_mirror, f"{SUITE}-security"),
    )
    return "\n".join(
        f"Types: deb\nURIs: {uri}\nSuites: {suites}\nComponents: main\nSigned-By: {keyring}\n"
        for uri, suites in entries
    )


def digest(host: HostSettings, interpreter: Interpreter) -> str:
    """Return a hash of the tree's input, without the packages' versions."""
    parts = {
        "version": _VERSION,
        "packages": [*FIRST_PACKAGES, *PACKAGES, *LIBRARIES],
        "masked": MASKED_UNITS,
        "sources": sources(host),
        "python": interpreter.identity,
        "files": {name: [_sha(body), mode] for name, (body, mode) in files().items()},
        "cas": {name: _sha(body) for name, body in sorted(host.local_cas.items())},
    }
    return _sha(json.dumps(parts, sort_keys=True).encode())


def image_id(host: HostSettings, interpreter: Interpreter) -> str:
    """Return the image id of a base with this recipe.

    The same recipe has the same id.
    """
    return f"ami-{digest(host, interpreter)[:17]}"


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
