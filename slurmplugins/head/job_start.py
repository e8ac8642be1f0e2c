"""Wait until a job's nodes are up, and ask slurmctld no more often than it can bear."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import SlurmError
from slurmplugins.model.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.system.clock import Clock


SLOTS: Final = 32
"""Jobs that may wait at once."""
FIRST_PERIOD: Final = 1.0
PERIOD_PER_SLOT: Final = 0.25
PERIOD_PER_NODE: Final = 0.01
"""Seconds added per node: slurmctld's answer about a thousand nodes is a megabyte."""


def cloud_nodes(hostlist: str, settings: BurstConfig) -> tuple[NodeName, ...]:
    """Return the job's nodes that are EC2 instances of ours.

    Empty for a job on other nodes. Raises BadName.
    """
    return tuple(node for node in expand(hostlist) if settings.pool_of(node) is not None)


def acquire_slot(directory: Path) -> int | None:
    """Take a free slot, held until this process ends.

    Returns its number, or None when all are taken. The lock is freed however the process ends.
    Raises OSError.
    """
    directory.mkdir(mode=0o750, exist_ok=True)
    for slot in range(SLOTS):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(directory / f"{slot:02d}", flags, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return slot
    return None


def poll_period(slot: int, nodes: int) -> float:
    """Return the seconds between two reads."""
    return FIRST_PERIOD + slot * PERIOD_PER_SLOT + nodes * PERIOD_PER_NODE


def wait_for_nodes(
    slurm: Slurm, clock: Clock, nodes: Sequence[NodeName], poll_seconds: float, patience: float
) -> bool:
    """Read the nodes every `poll_seconds` until they are all up.

    Returns True when all are up. Returns False as soon as one is not the job's any more, or after
    `patience` seconds.
    """
    deadline = clock.monotonic() + patience
    while clock.monotonic() < deadline:
        try:
            job_nodes = slurm.nodes(nodes)
        except SlurmError:
            pass  # slurmctld is busy or restarts: read again
        else:
            if any(node.down or not node.busy for node in job_nodes):
                return False
            if not any(node.powering_off or node.powering_up for node in job_nodes):
                return True
        clock.sleep(poll_seconds)
    return False
