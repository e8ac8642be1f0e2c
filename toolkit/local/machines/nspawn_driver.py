"""The driver with real machines: a booted system container behind each instance."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.local.machines import enter_machine, nspawn_command
from toolkit.local.machines.cgroups import Groups
from toolkit.local.machines.driver import (
    CommandResult,
    MachineState,
    check_instance_id,
    check_vpc_id,
)
from toolkit.local.machines.errors import MachineError, NotRunning
from toolkit.local.machines.image_store import Image, ImageStore
from toolkit.local.machines.machine_directory import Disk
from toolkit.local.machines.machine_process import Launcher
from toolkit.local.machines.network import Network
from toolkit.local.machines.packet_filter import PacketFilter
from toolkit.local.machines.procfs import Processes
from toolkit.local.machines.shared_images import Library
from toolkit.local.machines.volume_devices import MAJOR, VolumeDevices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from toolkit.local.machines.driver import AttachedVolume, MachineSpec
    from toolkit.local.machines.firewall import Firewall
    from toolkit.local.machines.host_commands import Host
    from toolkit.local.machines.host_settings import HostSettings
    from toolkit.local.machines.layout import Layout

_SIGRTMIN = 34  # glibc's, the one systemd means; Python's signal.SIGRTMIN agrees
_POWEROFF = _SIGRTMIN + 4  # systemd(1): start poweroff.target
_START_PATIENCE = 60.0
_DEVICE_PATIENCE = 30.0
_CONSOLE_LIMIT = 64 * 1024  # what GetConsoleOutput returns
_INIT_TRIES = (
    3  # a booting PID 1 moves to a control group of its own, perhaps while they are listed
)
_TICK = 0.02


@dataclass(frozen=True, slots=True)
class _Init:
    """PID 1 of a machine, as the host sees it."""

    pid: int
    started_at: str


class NspawnDriver:
    """Boots, enters, ends and images machines under one state directory."""

    def __init__(self, layout: Layout, host: Host, inheritance: HostSettings) -> None:
        """Take over whatever an earlier process left running under this layout."""
        layout.make()
        self._layout = layout
        self._host = host
        self._inheritance = inheritance
        self._groups = Groups.on_this_host(layout.name)
        self._network = Network(layout.name, host, PacketFilter(host))
        self._processes = Processes()
        self._volumes = VolumeDevices(layout.volumes, host)
        self._locks: dict[str, threading.RLock] = {}
        self._locks_lock = threading.Lock()
        self._launchers: dict[str, Launcher] = {}
        self._inits: dict[str, _Init] = {}
        self.images = ImageStore(layout.images, Library(layout.library))

    def start(
        self, spec: MachineSpec, *, on_network: Callable[[Path | None], None] | None = None
    ) -> None:
        """Make disk and network if need be, and boot; see Driver."""
        with self._lock(spec.instance_id):
            if self._init(spec.instance_id) is not None:
                return
            self._end(spec.instance_id)  # what is left of a launcher that was cut off
            overlay = self._disk(spec.instance_id).prepare(spec, self.images, self._inheritance)
            namespace = None if spec.host_network else self._network.connect(spec)
            if on_network is not None:
                on_network(namespace)
            self._launch(spec, overlay, namespace)

    def state(self, instance_id: str) -> MachineState:
        """Read the machine's state from the kernel and the disk."""
        check_instance_id(instance_id)
        self._reap(instance_id)
        if self._init(instance_id) is not None:
            return MachineState.RUNNING
        if any(self._processes.is_alive(pid) for pid in self._groups.members(instance_id)):
            return MachineState.STARTING
        exists = self._layout.instance(instance_id).exists()
        return MachineState.EXITED if exists else MachineState.ABSENT

    def stop(self, instance_id: str, *, grace: float) -> None:
        """Power off, then kill; see Driver."""
        init = self._init(check_instance_id(instance_id))
        if init is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(init, _POWEROFF)
            self._await_end(instance_id, grace)
        with self._lock(instance_id):
            self._end(instance_id)

    def delete(self, instance_id: str) -> None:
        """End the machine and remove all of it but its console log."""
        with self._lock(check_instance_id(instance_id)):
            self._end(instance_id)
            self._network.disconnect(instance_id)
            self._disk(instance_id).remove()

    def attach(self, instance_id: str, volume: AttachedVolume) -> None:
        """Put the volume's device into a running machine."""
        with self._lock(check_instance_id(instance_id)):
            number = self._volumes.number(self._volumes.connect(volume.id))
            path = str(volume.device)
            if self._run(instance_id, ["test", "-e", path]).returncode == 0:
                return
            for argv in (
                ["mkdir", "--parents", str(volume.device.parent)],
                ["mknod", "--mode=600", path, "b", str(MAJOR), str(number)],
            ):
                result = self._run(instance_id, argv)
                if result.returncode != 0:
                    raise MachineError(f"{instance_id}: {argv}: {result.stderr.decode()}")

    def detach(self, instance_id: str, volume: AttachedVolume) -> bool:
        """Take the device from a machine that has not mounted it."""
        with self._lock(check_instance_id(instance_id)):
            device, init = self._volumes.find(volume.id), self._init(instance_id)
            if device is not None and init is not None:
                if self._processes.has_mounted(init, (MAJOR, self._volumes.number(device))):
                    return False
                path = str(volume.device)
                self._run(instance_id, ["umount", path])  # a device from the start is a mount
                self._run(instance_id, ["rm", "--force", path])
            self._volumes.disconnect(volume.id)
            return True

    def _run(self, instance_id: str, argv: Sequence[str]) -> CommandResult:
        return self.execute(instance_id, argv, timeout=_DEVICE_PATIENCE)

    def execute(
        self, instance_id: str, argv: Sequence[str], *, timeout: float, stdin: bytes = b""
    ) -> CommandResult:
        """Run a command in all namespaces of the machine's PID 1.

        Its environment is clean.
        """
        init = self._init(check_instance_id(instance_id))
        if init is None:
            raise NotRunning(f"{instance_id} is {self.state(instance_id).value}, not running")
        record = self._disk(instance_id).record()
        variables = record.environment if record else {}
        return self._host.run(
            nspawn_command.enter_argv(init, variables, argv), stdin=stdin, timeout=timeout, env={}
        )

    def set_firewall(self, vpc_id: str, firewall: Firewall) -> None:
        """Put a VPC's firewall in force, if the VPC has machines."""
        check_vpc_id(vpc_id)
        self._network.set_firewall(vpc_id, firewall)

    def console(self, instance_id: str) -> bytes:
        """Return the end of the console log."""
        try:
            with self._layout.console(instance_id).open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(0, size - _CONSOLE_LIMIT))
                return log.read()
        except FileNotFoundError:
            return b""

    def snapshot(self, instance_id: str, image_id: str) -> None:
        """Make the machine's changes an image over its own.

        The machine continues on top of it.
        """
        with self._lock(check_instance_id(instance_id)):
            if self._groups.members(instance_id):
                raise MachineError(f"{instance_id} runs: stop it before making an image of it")
            disk = self._disk(instance_id)
            parent = disk.require_record().image_id
            image = Image(image_id, name=image_id, parent=parent, created=time.time())
            self.images.adopt_disk(image, disk.upper)
            disk.rebase_on(image_id)

    def list(self) -> tuple[str, ...]:
        """Return every instance with our disk, namespace or process."""
        instances = self._layout.instances
        instance_ids = {entry.name for entry in instances.iterdir() if entry.name.startswith("i-")}
        instance_ids.update(self._network.instances())
        instance_ids.update(name for name in self._groups.machines() if name.startswith("i-"))
        instance_ids.update(
            path.partition("/")[0] for _, path in self._processes.nspawns_under(instances)
        )
        return tuple(sorted(instance_ids))

    def images_in_use(self) -> frozenset[str]:
        """Return the images that machines stand on, which the store must keep."""
        records = (Disk(home).record() for home in self._layout.instances.glob("i-*"))
        return frozenset(record.image_id for record in records if record)

    def _disk(self, instance_id: str) -> Disk:
        return Disk(self._layout.instance(instance_id))

    def _launch(
        self, spec: MachineSpec, overlay: nspawn_command.Overlay, namespace: Path | None
    ) -> None:
        instance_id = spec.instance_id
        argv = nspawn_command.boot_argv(
            spec,
            overlay.root,
            namespace=namespace,
            binds=self._binds(spec),
            read_only=self._inheritance.pip_directories if spec.host_network else (),
            environment={},  # systemd-nspawn's argv is for all to see; the seed layer has it
        )
        groups = self._groups.make(instance_id)
        launch_plan = nspawn_command.launch_plan(argv, overlay=overlay, cgroups=groups)
        path = self._disk(instance_id).write("launch.json", launch_plan)
        ready = path.with_suffix(enter_machine.READY)
        ready.unlink(missing_ok=True)
        log = self._layout.console(instance_id)
        self._launchers[instance_id] = Launcher.spawn(path, log)
        self._await_start(instance_id, ready)

    def _binds(self, spec: MachineSpec) -> dict[Path, Path]:
        """Return the host's paths that a machine sees, and where."""
        if spec.host_network:
            return {}
        devices = {self._volumes.connect(item.id): Path(item.device) for item in spec.volumes}
        return {spec.fs_root: Path("/var/lib/fsx"), **devices}

    def _await_start(self, instance_id: str, ready: Path) -> None:
        deadline = time.monotonic() + _START_PATIENCE
        while self._init(instance_id) is None or not ready.exists():
            if self._launchers[instance_id].has_ended() or time.monotonic() > deadline:
                console_tail = self.console(instance_id)[-1000:].decode(errors="replace").strip()
                self._end(instance_id)
                raise MachineError(f"{instance_id} did not start; its console ends: {console_tail}")
            time.sleep(_TICK)

    def _await_end(self, instance_id: str, grace: float) -> None:
        deadline = time.monotonic() + grace
        while self._groups.members(instance_id) and time.monotonic() < deadline:
            self._reap(instance_id)
            time.sleep(_TICK)

    def _end(self, instance_id: str) -> None:
        """Kill PID 1 first, then the rest.

        systemd-nspawn can then leave on its own.
        """
        init = self._init(instance_id)
        if init is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(init, signal.SIGKILL)
            self._await_end(instance_id, 2.0)
        if not self._groups.kill(instance_id):
            raise MachineError(f"processes of {instance_id} survive SIGKILL: is the disk stuck?")
        self._reap(instance_id, within=5.0)
        self._groups.remove(instance_id)

    def _init(self, instance_id: str) -> int | None:
        """Return the machine's PID 1 while it is alive.

        It is asked for each second: the one that was found last is looked at first.
        """
        known = self._inits.get(instance_id)
        if known is not None and self._processes.started_at(known.pid) == known.started_at:
            return known.pid
        self._inits.pop(instance_id, None)
        for _ in range(_INIT_TRIES):
            members = self._groups.members(instance_id)
            for pid in members:
                started_at = self._processes.started_at(pid)
                if started_at is not None and self._processes.is_init(pid):
                    self._inits[instance_id] = _Init(pid, started_at)
                    return pid
            if not members:
                return None
        return None

    def _reap(self, instance_id: str, *, within: float = 0.0) -> None:
        launcher = self._launchers.get(instance_id)
        if launcher is not None and launcher.has_ended(within=within):
            self._launchers.pop(instance_id, None)

    @contextlib.contextmanager
    def _lock(self, instance_id: str) -> Iterator[None]:
        """Lock an instance: threads by a lock, processes by a file."""
        self._layout.run.mkdir(exist_ok=True)  # a clean-up may have been here since
        with self._locks_lock:
            lock = self._locks.setdefault(check_instance_id(instance_id), threading.RLock())
        with lock, (self._layout.run / f"{instance_id}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
