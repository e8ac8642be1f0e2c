"""The start of a machine: the systemd-nspawn command line and the launcher's plan. Pure."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from toolkit.local.machines.driver import MachineSpec

_UUIDS = uuid.UUID("6a1f7a0e-2f0b-4a6e-9d0d-5d3c8f2b7e11")  # ours, for machine ids
_QUIET = (
    "--quiet",
    "--register=no",  # no systemd-machined needed
    "--keep-unit",  # no systemd on the host needed
    "--settings=no",
    "--link-journal=no",
    "--resolv-conf=off",
    "--timezone=off",
)
_HOST_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "SYSTEMD_NSPAWN_TMPFS_TMP": "0",  # /tmp on the machine's disk: pip unpacks torch there
}


@dataclass(frozen=True, slots=True)
class Overlay:
    """A machine's root: layers newest first, the directory that takes the changes, the mount."""

    lower: tuple[Path, ...]
    upper: Path
    work: Path
    root: Path

    def as_json(self) -> dict[str, object]:
        """Return what enter_machine.py expects."""
        return {
            "lower": [str(layer) for layer in self.lower],
            "upper": str(self.upper),
            "work": str(self.work),
            "root": str(self.root),
        }


def launch_plan(
    argv: Sequence[str],
    *,
    overlay: Overlay | None,
    cgroups: Sequence[Path],
    with_parent: bool = False,
    environment: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Return the plan for enter_machine.py."""
    return {
        "argv": list(argv),
        "overlay": overlay.as_json() if overlay else None,
        "cgroups": [str(group) for group in cgroups],
        "parent": with_parent,
        "env": {**_HOST_ENVIRONMENT, **(environment or {})},
    }


def boot_argv(
    spec: MachineSpec,
    root: Path,
    *,
    namespace: Path | None,
    binds: Mapping[Path, Path],
    read_only: Sequence[Path],
    environment: Mapping[str, str],
) -> list[str]:
    """Return the command that boots the machine.

    `namespace` None is the host's network.
    """
    short = spec.hostname.partition(".")[0]
    argv = [
        "systemd-nspawn",
        *_QUIET,
        "--boot",
        "--console=read-only",
        f"--directory={root}",
        f"--machine={spec.instance_id}",
        f"--hostname={short}",
        f"--uuid={uuid.uuid5(_UUIDS, spec.instance_id)}",
        "--capability=CAP_IPC_LOCK",
        "--tmpfs=/dev/shm:mode=1777,size=50%",  # as on EC2, where nspawn gives a tenth
        "--setenv=SYSTEMD_COLORS=0",
    ]
    if namespace is not None:
        # The machine's network is its own to configure; never the host's.
        argv += [f"--network-namespace-path={namespace}", "--capability=CAP_NET_ADMIN"]
    argv += [f"--bind={_escape(outer)}:{_escape(inner)}" for outer, inner in binds.items()]
    argv += [f"--bind-ro={_escape(directory)}" for directory in read_only]
    argv += [f"--setenv={name}={value}" for name, value in sorted(environment.items())]
    return argv


def run_argv(root: Path, binds: Mapping[Path, Path], argv: Sequence[str]) -> list[str]:
    """Return the command that runs a program in an unbooted tree.

    It uses the host's network.
    """
    return [
        "systemd-nspawn",
        *_QUIET,
        "--console=pipe",
        "--as-pid2",
        f"--directory={root}",
        *(f"--bind={_escape(outer)}:{_escape(inner)}" for outer, inner in binds.items()),
        "--setenv=DEBIAN_FRONTEND=noninteractive",
        "--setenv=LC_ALL=C.UTF-8",
        "--",
        *argv,
    ]


def enter_argv(pid: int, environment: Mapping[str, str], argv: Sequence[str]) -> list[str]:
    """Return the command that runs a program inside a machine.

    `pid` is the machine's PID 1.
    """
    inside = {
        "PATH": _HOST_ENVIRONMENT["PATH"],
        "HOME": "/root",
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        **environment,
    }
    return [
        "nsenter",
        f"--target={pid}",
        *("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root"),
        "--",
        "/usr/bin/env",
        "-i",
        "--chdir=/",  # nsenter's own --wd is a directory of the host
        *(f"{name}={value}" for name, value in inside.items()),
        *argv,
    ]


def _escape(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace(":", "\\:")
