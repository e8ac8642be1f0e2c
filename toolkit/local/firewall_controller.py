"""Keeps the firewalls of VPCs in step with their security groups, by looking again and again.

It follows moto's tables by their levels, as machine_controller.py does: it does not matter whether
a call, a launch or a stack changed a group.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from toolkit.local.aws import security_groups

if TYPE_CHECKING:
    from toolkit.local.aws.instance_tables import Tables
    from toolkit.local.machines.driver import Driver

log = logging.getLogger(__name__)

PERIOD = 0.2  # seconds between two looks
_RETRY = 2.0  # seconds after a look that failed


class FirewallController:
    """A controller of firewalls. `tick` looks once; `run` looks until it is stopped."""

    def __init__(self, tables: Tables, driver: Driver) -> None:
        """Read from `tables`, write by `driver`."""
        self._tables = tables
        self._driver = driver
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self) -> None:
        """Look every PERIOD until `stop`; no error ends it."""
        pause = PERIOD
        while not self._stop.wait(pause):
            try:
                self.tick()
                pause = PERIOD
            except Exception:
                log.exception("security groups could not be put in force")
                pause = _RETRY

    def stop(self) -> None:
        """End `run` after the look it is at."""
        self._stop.set()

    def tick(self) -> None:
        """Look once. A later look never gives way to an earlier one."""
        with self._lock:
            with self._tables.lock:
                firewalls = security_groups.firewalls(self._tables)
            for vpc_id, firewall in firewalls.items():
                self._driver.set_firewall(vpc_id, firewall)
