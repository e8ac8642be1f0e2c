"""The requirements of machines on this host, checked before anything is changed.

Every check tries the real operation if it leaves nothing behind. The overlay is tried
in its own mount namespace, a cable in a network namespace of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.local.machines import enter_machine, nspawn_command, packet_filter
from toolkit.local.machines.cgroups import hierarchies
from toolkit.local.machines.host_commands import RealHost
from toolkit.local.machines.python_copy import Interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolkit.local.machines.host_commands import Host
    from toolkit.local.machines.layout import Layout

_GIB = 1 << 30
_GB = 10**9
DISK_NEEDED = 16 * _GB  # Python packages with CUDA, base, two images; README says so
DISK_NEEDED_AGAIN = 4 * _GB  # where the packages and the base are there
MEMORY_NEEDED = 3 * _GIB
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PACKAGES = {  # command -> Debian and Ubuntu package
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "mount": "mount",
    "losetup": "mount",
    "sysctl": "procps",
    "cp": "coreutils",
}
_CAPABILITIES = {  # those a machine cannot do without; CAP_SYS_RESOURCE is not among them
    "CAP_SYS_ADMIN": 21,
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_CHROOT": 18,
    "CAP_MKNOD": 27,
    "CAP_SYS_PTRACE": 19,
    "CAP_SETUID": 7,
    "CAP_KILL": 5,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An obstacle: the requirement, the actual state, and advice."""

    requirement: str
    actual: str
    fix: str

    def __str__(self) -> str:
        return f"{self.requirement}: {self.actual}; {self.fix}"


@dataclass(frozen=True, slots=True)
class Preflight:
    """The checks for one state directory; everything they look at can be another host's."""

    layout: Layout
    port: int | None = None
    host: Host = field(default_factory=RealHost)
    which: Callable[[str], str | None] = shutil.which
    keyring: Path = _KEYRING
    proc: Path = Path("/proc")
    uid: Callable[[], int] = os.geteuid
    interpreter: Interpreter = field(default_factory=Interpreter.of_this_process)

    def problems(self) -> list[Problem]:
        """Return all problems at once; empty when machines can run."""
        problems = [
            *self._rights(),
            *self._commands(),
            *self._resources(),
            *self._python(),
            *self._port(),
        ]
        if not problems:  # the trials need root and the commands, and would only repeat the above
            problems = [
                *self._overlay(),
                *self._networks(),
                *self._groups(),
                *self._loop_devices(),
            ]
        return problems

    def limitations(self) -> list[Problem]:
        """Return what a host without problems still lacks to be as AWS."""
        reason = packet_filter.obstacle(self.host)
        if reason is None:
            return []
        return [
            Problem(
                "security groups that hold between machines",
                reason,
                "apt-get install nftables (CONFIG_NF_TABLES, CONFIG_NF_CONNTRACK in the kernel)",
            )
        ]

    def _rights(self) -> Iterable[Problem]:
        uid = self.uid()
        if uid != 0:
            yield Problem("root", f"uid {uid}", "run it with sudo")
            return
        lines = (self.proc / "self/status").read_text().splitlines()
        effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff"))
        missing_names = [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]
        if missing_names:
            yield Problem(
                f"capabilities {', '.join(missing_names)}",
                "not in this process's effective set",
                "run on a virtual machine, or in a container started with --privileged",
            )

    def _commands(self) -> Iterable[Problem]:
        packages = {command: pkg for command, pkg in _PACKAGES.items() if not self.which(command)}
        if packages:
            yield Problem(
                f"commands {', '.join(packages)}",
                "not on PATH",
                f"apt-get install {' '.join(dict.fromkeys(packages.values()))}",
            )
        if not self.keyring.exists():
            yield Problem(
                "Debian's archive keys",
                f"no {self.keyring}",
                "apt-get install debian-archive-keyring",
            )

    def _resources(self) -> Iterable[Problem]:
        directory = self.layout.state
        while not directory.exists():
            directory = directory.parent
        free = shutil.disk_usage(directory).free
        required = DISK_NEEDED_AGAIN if self._has_base() else DISK_NEEDED
        if free < required:
            yield Problem(
                f"{required // _GB} GB free at {directory}",
                f"{free / _GB:.1f} GB",
                "free some, or set TOOLKIT_LOCAL_DIR to another directory (docs/local.md: State)",
            )
        lines = (self.proc / "meminfo").read_text().splitlines()
        memory = 1024 * next(
            int(line.split()[1]) for line in lines if line.startswith("MemAvailable")
        )
        if memory < MEMORY_NEEDED:
            yield Problem(
                f"{MEMORY_NEEDED // _GIB} GiB of memory available",
                f"{memory / _GIB:.1f} GiB",
                "end other programs, or use a larger machine (8 GiB is enough)",
            )

    def _has_base(self) -> bool:
        return any(
            any(directory.glob("ami-*")) for directory in (self.layout.images, self.layout.library)
        )

    def _python(self) -> Iterable[Problem]:
        if sys.version_info < (3, 11):  # noqa: UP036 - the point is to tell who runs an older one
            yield Problem("Python 3.11 or later", sys.version.split()[0], "apt-get install python3")
        if not any(
            (directory / "pip/__main__.py").is_file() for directory in self.interpreter.pip_places
        ):
            yield Problem(
                "pip beside the Python that runs this",
                f"none in {', '.join(str(directory) for directory in self.interpreter.pip_places)}",
                "apt-get install python3-pip python3-venv",
            )

    def _port(self) -> Iterable[Problem]:
        if self.port is None:
            return
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.port))
            except OSError as error:
                yield Problem(
                    f"port {self.port} on 127.0.0.1",
                    error.strerror or str(error),
                    f"see `ss -ltnp sport = :{self.port}`, or choose another with --port",
                )

    def _overlay(self) -> Iterable[Problem]:
        """Mount a volatile overlay at the machines' disks, like the launcher."""
        directory = self.layout.state
        while not directory.exists():
            directory = directory.parent
        with tempfile.TemporaryDirectory(prefix=".toolkit-preflight-", dir=directory) as name:
            home = Path(name)
            parts = [home / part for part in ("lower", "upper", "work", "root")]
            for part in parts:
                part.mkdir()
            overlay = nspawn_command.Overlay((parts[0],), *parts[1:])
            path = home / "plan.json"
            path.write_text(
                json.dumps(nspawn_command.launch_plan(["true"], overlay=overlay, cgroups=()))
            )
            result = self.host.run([sys.executable, "-I", "-S", enter_machine.__file__, str(path)])
        if result.returncode != 0:
            error_lines = result.stderr.decode(errors="replace").strip().splitlines()
            yield Problem(
                f"overlay mounts below {directory}",
                error_lines[-1] if error_lines else f"exit {result.returncode}",
                "modprobe overlay; or set TOOLKIT_LOCAL_DIR to an ext4, xfs or btrfs directory "
                "(an overlay on an overlay, as inside Docker, does not work)",
            )

    def _networks(self) -> Iterable[Problem]:
        trials = {
            "veth": ["ip", "link", "add", "name", "tk0", "type", "veth", "peer", "name", "tk1"],
            "router": ["sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1"],
        }
        for part, argv in trials.items():
            result = self.host.run(["unshare", "--net", "--", *argv])
            if result.returncode != 0:
                yield Problem(
                    f"network namespaces with a {part}",
                    result.stderr.decode(errors="replace").strip() or f"exit {result.returncode}",
                    "modprobe veth (CONFIG_VETH, CONFIG_NET_NS); a writable /proc/sys",
                )

    def _groups(self) -> Iterable[Problem]:
        roots = hierarchies((self.proc / "self/mountinfo").read_text())
        if not roots:
            yield Problem(
                "control groups to track processes with",
                "neither cgroup2 nor the name=systemd hierarchy is mounted",
                "mount -t cgroup2 cgroup2 /sys/fs/cgroup",
            )
        for root in roots:
            trial = root / f"{self.layout.name}-preflight"
            try:
                trial.mkdir()
                trial.rmdir()
            except OSError as error:
                yield Problem(
                    f"a writable {root}",
                    error.strerror or str(error),
                    "run outside the container, or with its control groups writable",
                )

    def _loop_devices(self) -> Iterable[Problem]:
        """Look for a free loop device, which an EBS volume needs."""
        result = self.host.run(["losetup", "--find"])
        if result.returncode != 0:
            yield Problem(
                "a free loop device",
                result.stderr.decode(errors="replace").strip() or f"exit {result.returncode}",
                "modprobe loop; or run on a virtual machine, or with --privileged",
            )


def check(layout: Layout, *, port: int | None = None) -> list[Problem]:
    """Return this host's obstacles to running machines; see Preflight."""
    return Preflight(layout, port).problems()


def limitations(layout: Layout) -> list[Problem]:
    """Return how machines here fall short of AWS's; see Preflight."""
    return Preflight(layout).limitations()
