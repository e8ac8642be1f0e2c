"""The driver with no machines: the API alone, for thousands of instances."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from toolkit.local.machines.driver import (
    AttachedVolume,
    CommandResult,
    MachineSpec,
    MachineState,
)
from toolkit.local.machines.errors import NotRunning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from toolkit.local.machines.firewall import Firewall


class NoneDriver:
    """Remembers what was asked; starts nothing on the host."""

    def __init__(self) -> None:
        """Begin with no machine."""
        self._lock = threading.Lock()
        self._running: dict[str, bool] = {}

    def start(
        self, spec: MachineSpec, *, on_network: Callable[[Path | None], None] | None = None
    ) -> None:
        """Note that the machine runs; it has no network to listen in."""
        del on_network
        with self._lock:
            self._running[spec.instance_id] = True

    def state(self, instance_id: str) -> MachineState:
        """Return what was noted."""
        with self._lock:
            running = self._running.get(instance_id)
        if running is None:
            return MachineState.ABSENT
        return MachineState.RUNNING if running else MachineState.EXITED

    def stop(self, instance_id: str, *, grace: float) -> None:
        """Note that the machine stopped."""
        del grace
        with self._lock:
            if instance_id in self._running:
                self._running[instance_id] = False

    def delete(self, instance_id: str) -> None:
        """Forget the machine."""
        with self._lock:
            self._running.pop(instance_id, None)

    def attach(self, instance_id: str, volume: AttachedVolume) -> None:
        """Do nothing: a volume without content needs no device."""
        del instance_id, volume

    def detach(self, instance_id: str, volume: AttachedVolume) -> bool:
        """Suppose the worst: a running machine has mounted it."""
        del volume
        return self.state(instance_id) is not MachineState.RUNNING

    def execute(
        self, instance_id: str, argv: Sequence[str], *, timeout: float, stdin: bytes = b""
    ) -> CommandResult:
        """Refuse: there is no machine to run anything in."""
        del argv, timeout, stdin
        raise NotRunning(f"{instance_id} has no machine: the local cloud runs with driver none")

    def set_firewall(self, vpc_id: str, firewall: Firewall) -> None:
        """Do nothing: no machine sends anything."""
        del vpc_id, firewall

    def console(self, instance_id: str) -> bytes:
        """Return nothing: nobody wrote."""
        del instance_id
        return b""

    def snapshot(self, instance_id: str, image_id: str) -> None:
        """Do nothing: an image without content needs no place on disk."""
        del instance_id, image_id

    def list(self) -> tuple[str, ...]:
        """Return every instance not deleted yet."""
        with self._lock:
            return tuple(sorted(self._running))
