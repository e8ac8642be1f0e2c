"""Keeps machines in step with instances, by looking at both again and again.

It follows moto's table by its levels, so it does not matter who changed it: a
call, a fleet, a stack, an interruption. Nothing is lost when a step fails; the
next look finds the same difference.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from toolkit.local.aws.instance_tables import (
    GUEST_SHUTDOWN,
    LIVE_STATES,
    SPOT_TERMINATION,
    START_FAILED,
    LocalInstance,
    Reason,
    Tables,
)
from toolkit.local.machines.driver import AttachedVolume, Driver, MachineSpec, MachineState

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from pathlib import Path

    from toolkit.local.aws.instance_states import States
    from toolkit.local.options import Options

log = logging.getLogger(__name__)

PERIOD = 0.2  # seconds between two looks
_CHECK_RUNNING = 1.0  # seconds between two looks at whether a running machine still runs
_RETRY = 2.0  # seconds before a failed step is tried again
_STOP_GRACE = 60.0  # seconds a stopped (not terminated) machine may take to power off


class Network(Protocol):
    """Opens the endpoint and the metadata service inside a machine's network."""

    def open(self, instance_id: str, namespace: Path | None) -> None:
        """Listen there; None is the host's network, where the endpoint listens anyway."""

    def close(self, instance_id: str) -> None:
        """Stop listening there."""


class MachineController:
    """A controller of machines. `tick` looks once; `run` looks until it is stopped."""

    def __init__(  # noqa: PLR0917 - injected parts
        self,
        tables: Tables,
        states: States,
        driver: Driver,
        network: Network,
        spec_of: Callable[[LocalInstance], MachineSpec],
        options: Options,
        workers: Executor,
    ) -> None:
        """`workers` carries out what the driver takes its time for."""
        self._tables = tables
        self._states = states
        self._driver = driver
        self._network = network
        self._spec_of = spec_of
        self._options = options
        self._workers = workers
        self._busy: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._ready: dict[str, float] = {}  # when a started machine's instance is running
        self._volumes: dict[str, dict[str, int]] = {}  # what machines have: id → GiB
        self._last_check = 0.0
        self._stop = threading.Event()

    def run(self) -> None:
        """Look every PERIOD until `stop`; no error ends it."""
        while not self._stop.wait(PERIOD):
            try:
                self.tick()
            except Exception:
                log.exception("looking at instances failed")

    def stop(self) -> None:
        """End `run` after the look it is at."""
        self._stop.set()

    def tick(self) -> None:
        """Look once, and begin every step that is due."""
        now = self._tables.clock()
        check_running = now - self._last_check >= _CHECK_RUNNING
        if check_running:
            self._last_check = now
        with self._tables.lock:
            instances = list(self._tables.instances.values())
        for instance in instances:
            if instance.terminated_at is not None:
                if now - instance.terminated_at > self._options.forget_after:
                    self._forget(instance)
                continue
            self._interrupt_when_due(instance, now)
            if instance.id not in self._busy and self._not_before.get(instance.id, now) <= now:
                self._step(instance, now, check_running=check_running)

    def _step(self, instance: LocalInstance, now: float, *, check_running: bool) -> None:
        state = instance.state
        if state == "pending":
            self._handle_pending(instance, now)
        elif state == "shutting-down":
            self._submit(instance, self._terminate)
        elif state == "stopping":
            self._submit(instance, self._stop_machine)
        elif state == "running":
            if instance.reboot_requested:
                self._submit(instance, self._restart)
            elif check_running and self._is_powered_off(instance):
                self._handle_guest_shutdown(instance)
            elif self._lacks_volume(instance):
                self._submit(instance, self._attach_volumes)
            elif check_running and instance.detaching:
                self._submit(instance, self._detach_volumes)
        elif state == "stopped" and check_running and instance.detaching:
            self._submit(instance, self._detach_volumes)

    def _is_powered_off(self, instance: LocalInstance) -> bool:
        return self._driver.state(instance.id) in (MachineState.EXITED, MachineState.ABSENT)

    def _handle_pending(self, instance: LocalInstance, now: float) -> None:
        ready = self._ready.get(instance.id)
        if ready is None:
            self._submit(instance, self._start)
        elif now >= ready:
            with self._tables.lock:
                if instance.state == "pending":
                    self._tables.set_state(instance, "running")
            self._ready.pop(instance.id, None)

    def _submit(self, instance: LocalInstance, step: Callable[[LocalInstance], None]) -> None:
        """Run a step in its own thread, one per instance at most."""

        def work() -> None:
            try:
                step(instance)
            except Exception:
                log.exception("%s: %s failed, trying again", instance.id, step.__name__)
                self._not_before[instance.id] = self._tables.clock() + _RETRY
            finally:
                self._busy.discard(instance.id)

        self._busy.add(instance.id)
        self._workers.submit(work)

    def _start(self, instance: LocalInstance) -> None:
        try:
            with self._tables.lock:
                spec = self._spec_of(instance)
                self._volumes[instance.id] = dict(instance.volumes)
            self._driver.start(
                spec, on_network=lambda namespace: self._network.open(instance.id, namespace)
            )
        except Exception as error:
            log.exception("%s did not start", instance.id)
            with self._tables.lock:
                reason = Reason(START_FAILED.code, f"{START_FAILED.message}: {error}")
                self._states.request_state(instance.id, "shutting-down", LIVE_STATES, reason)
            return
        log.info("%s started", instance.id)
        self._ready[instance.id] = self._tables.clock() + self._options.boot_delay

    def _lacks_volume(self, instance: LocalInstance) -> bool:
        machine_has = self._volumes.get(instance.id, {})
        return any(machine_has.get(key) != gib for key, gib in instance.volumes.items())

    def _attach_volumes(self, instance: LocalInstance) -> None:
        with self._tables.lock:
            attached = dict(instance.volumes)
        for volume, gib in attached.items():
            self._driver.attach(instance.id, AttachedVolume(volume, gib))
        self._volumes[instance.id] = attached

    def _detach_volumes(self, instance: LocalInstance) -> None:
        """Finish the detachments that the machine allows; the others wait for it."""
        with self._tables.lock:
            detaching = {key: instance.volumes[key] for key in instance.detaching}
        for volume, gib in detaching.items():
            if self._driver.detach(instance.id, AttachedVolume(volume, gib)):
                self._volumes.get(instance.id, {}).pop(volume, None)
                with self._tables.lock:
                    self._states.record_detached(instance, volume)

    def _release_volumes(self, instance: LocalInstance) -> None:
        """Take all volumes from a machine that has ended."""
        for volume, gib in self._volumes.get(instance.id, {}).items():
            self._driver.detach(instance.id, AttachedVolume(volume, gib))
        self._volumes.pop(instance.id, None)

    def _stop_machine(self, instance: LocalInstance) -> None:
        self._driver.stop(instance.id, grace=_STOP_GRACE)
        self._network.close(instance.id)
        self._ready.pop(instance.id, None)
        with self._tables.lock:
            if instance.state == "stopping":
                self._tables.set_state(instance, "stopped", instance.reason)

    def _restart(self, instance: LocalInstance) -> None:
        self._driver.stop(instance.id, grace=_STOP_GRACE)
        instance.reboot_requested = False
        self._start(instance)

    def _terminate(self, instance: LocalInstance) -> None:
        if self._driver.state(instance.id) is MachineState.RUNNING:
            self._driver.stop(instance.id, grace=self._options.shutdown_grace)
        self._network.close(instance.id)
        self._driver.delete(instance.id)
        self._release_volumes(instance)
        self._ready.pop(instance.id, None)
        with self._tables.lock:
            self._states.record_terminated(instance)
        log.info("%s terminated: %s", instance.id, instance.reason)

    def _handle_guest_shutdown(self, instance: LocalInstance) -> None:
        """Do what the instance wants when its machine powers itself off."""
        terminate = instance.row.instance_initiated_shutdown_behavior == "terminate"
        next_state = "shutting-down" if terminate or instance.pool.market == "spot" else "stopping"
        with self._tables.lock:
            self._states.request_state(instance.id, next_state, ("running",), GUEST_SHUTDOWN)

    def _interrupt_when_due(self, instance: LocalInstance, now: float) -> None:
        """Take a spot instance back once its notice has run out."""
        if (
            instance.notice is None
            or now < instance.notice.deadline
            or instance.state not in LIVE_STATES
        ):
            return
        log.info("%s interrupted", instance.id)
        with self._tables.lock:
            self._states.request_state(instance.id, "shutting-down", LIVE_STATES, SPOT_TERMINATION)

    def _forget(self, instance: LocalInstance) -> None:
        with self._tables.lock:
            self._states.forget(instance)
        self._not_before.pop(instance.id, None)
