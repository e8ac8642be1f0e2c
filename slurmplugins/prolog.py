"""PrologSlurmctld: a job starts the moment its nodes are ready.

slurmctld looks at jobs that wait for nodes to boot every 30 s (PERIODIC_TIMEOUT in its job_mgr.c),
but at one job at once when its PrologSlurmctld ends (prolog_running_decr in job_scheduler.c). So
this program ends when the job's nodes are up. It never fails and never decides anything: without
it, or when it gives up, the job starts up to 30 s later. slurmctld runs it again after a restart of
its own, and then does not end it with the job: a job that is requeued while its prolog runs can't
start anywhere until that ends. So it ends, too, when a node is lost to the job.

Each waiting job costs a process and a question now and then, so places are few, and those who
come later ask less often: all of them together ask slurmctld ten times a second at most.
"""

from __future__ import annotations

import fcntl
import os
import sys
from typing import TYPE_CHECKING, Final

from slurmplugins import config, names, paths
from slurmplugins.clock import SystemClock
from slurmplugins.errors import EngineError, SlurmError
from slurmplugins.runner import SystemRunner
from slurmplugins.slurm import ScontrolSlurm

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from slurmplugins.clock import Clock
    from slurmplugins.config import BurstConfig
    from slurmplugins.names import NodeName
    from slurmplugins.slurm import Slurm

PLACES: Final = 32
FIRST_PERIOD: Final = 1.0
PERIOD_PER_PLACE: Final = 0.25
PERIOD_PER_NODE: Final = 0.01
"""What slurmctld says of a thousand nodes is a megabyte."""


def main() -> None:
    """End with 0 whatever happens: anything else would requeue the job."""
    try:
        settings = config.load(paths.BURST)
        nodes = cloud_nodes(os.environ.get("SLURM_JOB_NODELIST", ""), settings)
        place = take_place(paths.STATE / "prolog") if nodes else None
        if place is not None:
            slurm = ScontrolSlurm(SystemRunner(), settings.slurm_bin)
            wait(slurm, SystemClock(), nodes, period(place, len(nodes)), settings.resume_timeout)
    except (EngineError, OSError) as error:
        sys.stderr.write(f"slurm-prolog: {error}\n")
    sys.exit(0)


def cloud_nodes(hostlist: str, settings: BurstConfig) -> tuple[NodeName, ...]:
    """The job's nodes that are machines of ours; none for a job elsewhere."""
    return tuple(node for node in names.expand(hostlist) if settings.pool_of(node) is not None)


def take_place(directory: Path) -> int | None:
    """The number of a free place, held until this process ends however it ends; None when all
    are taken.
    """
    directory.mkdir(mode=0o750, exist_ok=True)
    for place in range(PLACES):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(directory / f"{place:02d}", flags, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return place
    return None


def period(place: int, nodes: int) -> float:
    """Seconds between two questions."""
    return FIRST_PERIOD + place * PERIOD_PER_PLACE + nodes * PERIOD_PER_NODE


def wait(
    slurm: Slurm, clock: Clock, nodes: Sequence[NodeName], seconds: float, patience: float
) -> bool:
    """Ask every so many seconds until every node is up: True. False as soon as one is not the job's
    any more, or after `patience` seconds.
    """
    deadline = clock.monotonic() + patience
    while clock.monotonic() < deadline:
        try:
            found = slurm.nodes(nodes)
        except SlurmError:
            pass  # a busy or restarting slurmctld is asked again
        else:
            if any(node.down or not node.busy for node in found):
                return False
            if not any(node.off or node.powering_up for node in found):
                return True
        clock.sleep(seconds)
    return False


if __name__ == "__main__":
    main()
