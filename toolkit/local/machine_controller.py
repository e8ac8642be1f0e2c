"""Keeps machines in step with instances, by looking at both again and again.

It follows moto's table by its levels, so it does not matter who changed it: a
call, a fleet, a stack, an interruption. Nothing is lost when a step fails; the
next look finds the same difference.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from toolkit.local.aws.instance_states import ALL_BUT_ENDED, States
from toolkit.local.aws.instance_tables import (
    GUEST_SHUTDOWN,
    SPOT_RECLAIMED,
    START_FAILED,
    Life,
    Reason,
    Tables,
)
from toolkit.local.machines.driver import Driver, MachineSpec, MachineState

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from pathlib import Path

    from toolkit.local.options import Options

log = logging.getLogger(__name__)

PERIOD = 0.2  # seconds between two looks
_LOOK_AT_RUNNING = 1.0  # seconds between two looks at whether a running machine still runs
_RETRY = 2.0  # seconds before a failed step is tried again
_STOP_GRACE = 60.0  # seconds a stopped (not terminated) machine may take to power off


class Network(Protocol):
    """Opens the endpoint and the metadata service inside a machine's network."""

    def open(self, instance_id: str, namespace: Path | None) -> None:
        """Listen there; None is the host's network, where the endpoint listens anyway."""

    def close(self, instance_id: str) -> None:
        """Stop listening there."""


class Keeper:
    """A controller of machines. `tick` looks once; `run` looks until it is stopped."""

    def __init__(  # noqa: PLR0917 - injected parts
        self,
        tables: Tables,
        states: States,
        driver: Driver,
        network: Network,
        spec_of: Callable[[Life], MachineSpec],
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
        self._looked = 0.0
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
        look = now - self._looked >= _LOOK_AT_RUNNING
        if look:
            self._looked = now
        with self._tables.lock:
            lives = list(self._tables.lives.values())
        for life in lives:
            if life.ended is not None:
                if now - life.ended > self._options.forget_after:
                    self._forget(life)
                continue
            self._reclaim(life, now)
            if life.id not in self._busy and self._not_before.get(life.id, now) <= now:
                self._step(life, now, look=look)

    def _step(self, life: Life, now: float, *, look: bool) -> None:
        state = life.state
        if state == "pending":
            self._pending(life, now)
        elif state == "shutting-down":
            self._begin(life, self._end)
        elif state == "stopping":
            self._begin(life, self._halt)
        elif state == "running":
            if life.reboot:
                self._begin(life, self._restart)
            elif look and self._is_off(life):
                self._guest_went(life)

    def _is_off(self, life: Life) -> bool:
        return self._driver.state(life.id) in (MachineState.EXITED, MachineState.ABSENT)

    def _pending(self, life: Life, now: float) -> None:
        ready = self._ready.get(life.id)
        if ready is None:
            self._begin(life, self._start)
        elif now >= ready:
            with self._tables.lock:
                if life.state == "pending":
                    self._tables.set_state(life, "running")
            self._ready.pop(life.id, None)

    def _begin(self, life: Life, step: Callable[[Life], None]) -> None:
        """Run a step in its own thread, one per instance at most."""

        def work() -> None:
            try:
                step(life)
            except Exception:
                log.exception("%s: %s failed, trying again", life.id, step.__name__)
                self._not_before[life.id] = self._tables.clock() + _RETRY
            finally:
                self._busy.discard(life.id)

        self._busy.add(life.id)
        self._workers.submit(work)

    def _start(self, life: Life) -> None:
        try:
            with self._tables.lock:
                spec = self._spec_of(life)
            self._driver.start(
                spec, on_network=lambda namespace: self._network.open(life.id, namespace)
            )
        except Exception as error:
            log.exception("%s did not start", life.id)
            with self._tables.lock:
                reason = Reason(START_FAILED.code, f"{START_FAILED.message}: {error}")
                self._states.ask(life.id, "shutting-down", ALL_BUT_ENDED, reason)
            return
        log.info("%s started", life.id)
        self._ready[life.id] = self._tables.clock() + self._options.boot_delay

    def _halt(self, life: Life) -> None:
        self._driver.stop(life.id, grace=_STOP_GRACE)
        self._network.close(life.id)
        self._ready.pop(life.id, None)
        with self._tables.lock:
            if life.state == "stopping":
                self._tables.set_state(life, "stopped", life.reason)

    def _restart(self, life: Life) -> None:
        self._driver.stop(life.id, grace=_STOP_GRACE)
        life.reboot = False
        self._start(life)

    def _end(self, life: Life) -> None:
        if self._driver.state(life.id) is MachineState.RUNNING:
            self._driver.stop(life.id, grace=self._options.shutdown_grace)
        self._network.close(life.id)
        self._driver.delete(life.id)
        self._ready.pop(life.id, None)
        with self._tables.lock:
            self._states.finish(life)
        log.info("%s terminated: %s", life.id, life.reason)

    def _guest_went(self, life: Life) -> None:
        """Do what the instance wants when its machine powers itself off."""
        terminate = life.instance.instance_initiated_shutdown_behavior == "terminate"
        wanted = "shutting-down" if terminate or life.pool.market == "spot" else "stopping"
        with self._tables.lock:
            self._states.ask(life.id, wanted, ("running",), GUEST_SHUTDOWN)

    def _reclaim(self, life: Life, now: float) -> None:
        """Take a spot instance back once its notice has run out."""
        if life.notice is None or now < life.notice.deadline or life.state not in ALL_BUT_ENDED:
            return
        log.info("%s reclaimed", life.id)
        with self._tables.lock:
            self._states.ask(life.id, "shutting-down", ALL_BUT_ENDED, SPOT_RECLAIMED)

    def _forget(self, life: Life) -> None:
        with self._tables.lock:
            self._states.forget(life)
        self._not_before.pop(life.id, None)
