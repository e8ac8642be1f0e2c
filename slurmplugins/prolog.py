"""PrologSlurmctld: start a job the moment its nodes are ready.

slurmctld looks at jobs that wait for nodes to boot every 30 s (PERIODIC_TIMEOUT in its job_mgr.c).
It looks at one job at once when that job's PrologSlurmctld ends (prolog_running_decr in
job_scheduler.c). So this program ends when the job's nodes are up. It never fails and never decides
anything: without it, or when it gives up, the job starts up to 30 s later.

slurmctld runs it again after a restart of its own, and then does not end it with the job. A job
that is requeued while its prolog runs can't start anywhere until the prolog ends. So this program
also ends when the job loses a node.

Each waiting job costs a process and a query now and then. So slots are few, and later jobs query
less often. All of them together query slurmctld ten times a second at most.
"""

from __future__ import annotations

import os
import sys

from slurmplugins.config import burst, paths
from slurmplugins.errors import EngineError
from slurmplugins.head.job_start import acquire_slot, cloud_nodes, poll_period, wait_for_nodes
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner


def main() -> None:
    """Exit with 0 in every case: another code would requeue the job."""
    try:
        settings = burst.load(paths.BURST)
        nodes = cloud_nodes(os.environ.get("SLURM_JOB_NODELIST", ""), settings)
        slot = acquire_slot(paths.STATE / "prolog") if nodes else None
        if slot is not None:
            slurm = ScontrolSlurm(SystemRunner(), settings.slurm_bin)
            wait_for_nodes(
                slurm, SystemClock(), nodes, poll_period(slot, len(nodes)), settings.resume_timeout
            )
    except (EngineError, OSError) as error:
        sys.stderr.write(f"slurm-prolog: {error}\n")
    sys.exit(0)


if __name__ == "__main__":
    main()
