"""Remove every trace of a local cloud from the host, also after a kill -9 of everything."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.local.machines.cgroups import Groups
from toolkit.local.machines.errors import MachineError
from toolkit.local.machines.host_commands import RealHost, run_checked
from toolkit.local.machines.image_store import ImageStore
from toolkit.local.machines.network import Network
from toolkit.local.machines.packet_filter import PacketFilter
from toolkit.local.machines.procfs import Processes
from toolkit.local.machines.volume_devices import VolumeDevices

if TYPE_CHECKING:
    from toolkit.local.machines.host_commands import Host
    from toolkit.local.machines.layout import Layout

_MOUNTINFO = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Remains:
    """The remains that were found and removed; empty if there were none."""

    machines: tuple[str, ...]
    namespaces: tuple[str, ...]
    mounts: tuple[str, ...]
    disks: tuple[str, ...]

    def __bool__(self) -> bool:
        """Say whether anything was removed."""
        return any((self.machines, self.namespaces, self.mounts, self.disks))


def remove_everything(layout: Layout, host: Host | None = None) -> Remains:
    """End all machines and builds of the state directory.

    Images, consoles and cache stay. It needs no record in memory: the control groups,
    /proc, the namespaces' names and the directories show what exists. The local cloud's
    daemon must not be running.
    """
    host = host or RealHost()
    groups = Groups.on_this_host(layout.name)
    machines = groups.machines()
    for machine in machines:
        if not groups.kill(machine):
            raise MachineError(f"processes of {machine} survive SIGKILL: see ps and dmesg")
        groups.remove(machine)
    strays = _kill_strays(layout)
    network = Network(layout.name, host, PacketFilter(host))
    namespaces = network.namespaces()
    network.remove_all()
    mounts = _unmount_below(layout.state, host)
    devices = VolumeDevices(layout.volumes, host).disconnect_all()
    disks = _remove_disks(layout)
    if layout.images.is_dir():
        ImageStore(layout.images).sweep()
    return Remains((*machines, *strays), namespaces, mounts, (*disks, *devices))


def _kill_strays(layout: Layout) -> tuple[str, ...]:
    """End machines whose control group was lost: their init first, then systemd-nspawn."""
    processes = Processes()
    launchers = processes.nspawns_under(layout.state)
    for nspawn, _ in launchers:
        for pid in (*processes.children(nspawn), nspawn):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return tuple(path for _, path in launchers)


def _unmount_below(directory: Path, host: Host) -> tuple[str, ...]:
    """Unmount what somebody else mounted below the state directory; we never do."""
    prefix = f"{directory}/"
    points = [line.split()[4] for line in _MOUNTINFO.read_text().splitlines()]
    own_points = sorted((point for point in points if point.startswith(prefix)), reverse=True)
    for point in own_points:
        run_checked(host, ["umount", "--lazy", point])
    return tuple(own_points)


def _remove_disks(layout: Layout) -> tuple[str, ...]:
    homes = sorted(layout.instances.glob("i-*")) if layout.instances.is_dir() else []
    for home in homes:
        shutil.rmtree(home, ignore_errors=True)
    shutil.rmtree(layout.run, ignore_errors=True)
    return tuple(home.name for home in homes)
