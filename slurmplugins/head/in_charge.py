"""Tells whether the programs of timers may act on this host."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from slurmplugins.config import site
from slurmplugins.slurm import controllers
from slurmplugins.system.command import SystemRunner
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from slurmplugins.system.logger import Log


def is_in_charge(log: Log) -> bool:
    """Return whether a program of a timer may act on this host.

    On a site with several controllers, only that of the acting slurmctld may.
    """
    joined = site.load()
    if joined is None:
        return True
    acts = controllers.is_active(SystemRunner(), joined.slurm_bin, socket.gethostname())
    if not acts:
        log.info(LogEvent.CONTROLLER_NOT_ACTIVE, host=socket.gethostname())
    return acts
