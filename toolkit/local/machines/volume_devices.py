"""The devices of EBS volumes: loop devices of the host, over sparse files.

A file lives as long as its volume, whichever machine has it. A loop device is found by its
file in /sys, so nothing has to be remembered.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.local.machines.errors import CommandFailed, MachineError
from toolkit.local.machines.host_commands import run_checked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.local.machines.host_commands import Host

MAJOR = 7  # of loop devices: Documentation/admin-guide/devices.txt
_TRIES = 5  # another local cloud may take the free device that was found
_PATIENCE, _POLL = 10.0, 0.02  # seconds
_DELETED = " (deleted)"  # the kernel's mark of a file that is gone


@dataclass(frozen=True, slots=True)
class VolumeDevices:
    """The loop devices of one local cloud's volumes."""

    root: Path
    host: Host
    sys: Path = Path("/sys/block")
    dev: Path = Path("/dev")

    def file(self, volume_id: str) -> Path:
        """Return the file with the volume's content."""
        return self.root.resolve() / f"{volume_id}.img"

    def find(self, volume_id: str) -> Path | None:
        """Return the volume's loop device, None if it has none."""
        path = str(self.file(volume_id))
        return next((device for device, file in self._loops() if file == path), None)

    def connect(self, volume_id: str) -> Path:
        """Return the volume's loop device, with the file's size."""
        device = self.find(volume_id)
        if device is not None:
            run_checked(self.host, ["losetup", "--set-capacity", str(device)])
            return device
        for attempt in range(_TRIES):
            device = self._free()
            try:
                run_checked(self.host, ["losetup", str(device), str(self.file(volume_id))])
            except CommandFailed:
                if attempt == _TRIES - 1:
                    raise
                continue
            self._skip_flushes(device)
            return device
        raise AssertionError  # the last attempt returned or raised

    def disconnect(self, volume_id: str) -> None:
        """Free the volume's loop device, and wait; again is fine.

        The kernel keeps a device until the last mount of an ended machine is gone.
        """
        device, deadline = self.find(volume_id), time.monotonic() + _PATIENCE
        if device is not None:
            run_checked(self.host, ["losetup", "--detach", str(device)])
        while self.find(volume_id) is not None:
            if time.monotonic() > deadline:
                raise MachineError(f"{device} of {volume_id} is still mounted somewhere")
            time.sleep(_POLL)

    def disconnect_all(self) -> tuple[str, ...]:
        """Free the loop devices of all volumes; return the volumes."""
        files = [Path(file) for _, file in self._loops()]
        own_ids = sorted(file.stem for file in files if file.parent == self.root.resolve())
        for volume_id in own_ids:
            self.disconnect(volume_id)
        return tuple(own_ids)

    def number(self, device: Path) -> int:
        """Return a loop device's minor number."""
        return int(device.name.removeprefix("loop"))

    def _loops(self) -> Iterator[tuple[Path, str]]:
        """Yield each loop device in use, with its file."""
        for entry in self.sys.glob("loop*"):
            with contextlib.suppress(OSError):  # it was freed while we looked
                file = (entry / "loop/backing_file").read_text().strip()
                yield self.dev / entry.name, file.removesuffix(_DELETED)

    def _free(self) -> Path:
        """Return a free loop device, and make a missing node in /dev."""
        device = Path(run_checked(self.host, ["losetup", "--find"]).decode().strip())
        if not device.exists():
            os.mknod(device, stat.S_IFBLK | 0o600, os.makedev(MAJOR, self.number(device)))
        return device

    def _skip_flushes(self, device: Path) -> None:
        """Let fsync end in the host's memory, as on the machines' disks.

        A local volume need not survive a crash of the host either.
        """
        with contextlib.suppress(OSError):  # an old kernel writes more often; that is all
            (self.sys / device.name / "queue/write_cache").write_text("write through")
