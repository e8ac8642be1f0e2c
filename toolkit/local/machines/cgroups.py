"""A control group for each machine.

Two systemds then do not share one tree. All processes of a machine are found again
after its launcher got a kill -9.

The groups are beside the caller's, at `<hierarchy>/<name>/<machine>`. They are in each
hierarchy that systemd tracks processes by: cgroup v2, and `name=systemd` where the host
still mounts v1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from toolkit.local.machines.errors import MachineError

_MOUNTINFO = Path("/proc/self/mountinfo")


def hierarchies(mountinfo: str | None = None) -> tuple[Path, ...]:
    """Return the mount points of the host's tracking hierarchies, v2 last."""
    text = _MOUNTINFO.read_text() if mountinfo is None else mountinfo
    mounts: dict[Path, bool] = {}
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        point = Path(fields.split()[4])
        if kind == "cgroup2":
            mounts[point] = True
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            mounts[point] = False
    return tuple(sorted(mounts, key=lambda point: mounts[point]))


@dataclass(frozen=True, slots=True)
class Groups:
    """The control groups of one local cloud."""

    name: str
    roots: tuple[Path, ...]

    @classmethod
    def on_this_host(cls, name: str) -> Groups:
        """Use the hierarchies that are mounted here."""
        return cls(name, hierarchies())

    def make(self, machine: str) -> tuple[Path, ...]:
        """Create the machine's groups and return them, for its launcher to join."""
        groups = []
        for root in self.roots:
            group = root / self.name / machine
            _make_directories(group)
            self._delegate(root / self.name, group)
            groups.append(group)
        return tuple(groups)

    def members(self, machine: str) -> tuple[int, ...]:
        """Return the ids of all processes of the machine, lowest first."""
        pids: set[int] = set()
        for group in self._tree(machine):
            with contextlib.suppress(OSError):
                pids.update(int(line) for line in (group / "cgroup.procs").read_text().split())
        pids.discard(0)  # a process of another pid namespace reads as 0
        return tuple(sorted(pids))

    def machines(self) -> tuple[str, ...]:
        """Return every machine that has a group, dead or alive."""
        names: set[str] = set()
        for root in self.roots:
            with contextlib.suppress(OSError):
                names.update(entry.name for entry in (root / self.name).iterdir() if entry.is_dir())
        return tuple(sorted(names))

    def kill(self, machine: str, *, patience: float = 5.0) -> bool:
        """End the machine's processes with SIGKILL; True when none is left."""
        deadline = time.monotonic() + patience
        while members := self.members(machine):
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def remove(self, machine: str) -> None:
        """Remove the machine's groups; they must be empty of processes."""
        for group in self._tree(machine):
            with contextlib.suppress(OSError):
                group.rmdir()
        for root in self.roots:
            with contextlib.suppress(OSError):  # others still use it
                (root / self.name).rmdir()

    def _tree(self, machine: str) -> list[Path]:
        """Return the machine's groups, children before parents."""
        directories: list[Path] = []
        for root in self.roots:
            top = root / self.name / machine
            directories.extend(Path(path) for path, _, _ in os.walk(top, topdown=False))
        return directories

    def _delegate(self, *path: Path) -> None:
        """Pass on our own controllers (v2 only).

        The root of the tree is the host's.
        """
        for directory in path:
            with contextlib.suppress(OSError):
                controllers = (directory / "cgroup.controllers").read_text().split()
                for controller in controllers:
                    with contextlib.suppress(OSError):
                        (directory / "cgroup.subtree_control").write_text(f"+{controller}")


def _make_directories(group: Path) -> None:
    """Create the group; try again if its parent was removed.

    The end of another machine may remove it.
    """
    for _ in range(20):
        with contextlib.suppress(FileNotFoundError):
            group.mkdir(parents=True, exist_ok=True)
            return
    raise MachineError(f"{group} cannot be made")
