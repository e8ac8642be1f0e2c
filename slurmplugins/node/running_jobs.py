"""List the jobs on a node, even when slurmctld is silent."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from slurmplugins.slurm.agent_requests import JobAttempt
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.system.command import Runner


LOCAL_TIMEOUT: Final = 5.0
"""Seconds that slurmd has to list the processes of its jobs."""

_RESTARTS: Final = re.compile(rb"(?:^|\0)SLURM_RESTART_COUNT=(\d{1,6})(?:\0|$)")


def attempts(
    slurm: Slurm, runner: Runner, bin_dir: str, node: str, proc: Path
) -> frozenset[JobAttempt]:
    """Return the attempts that run on this node.

    slurmctld is asked first. If it does not answer, slurmd and /proc name the attempts. If it sends
    a record that can't be read, that job may be here: then slurmd and /proc name the rest.

    Raises SlurmError when neither answers.
    """
    try:
        jobs = slurm.jobs([node])
    except SlurmError:
        return _local_attempts(runner, bin_dir, proc)
    running_attempts = frozenset((job.id, job.restarts) for job in jobs if job.running)
    if all(job.readable for job in jobs):
        return running_attempts
    with contextlib.suppress(SlurmError):
        known_jobs = {job for job, _ in running_attempts}
        running_attempts |= {
            attempt
            for attempt in _local_attempts(runner, bin_dir, proc)
            if attempt[0] not in known_jobs
        }
    return running_attempts


def _local_attempts(runner: Runner, bin_dir: str, proc: Path) -> frozenset[JobAttempt]:
    """Return the attempts from slurmd's list of processes.

    slurmd knows the owner of each process, so no user can name another's job.

    The restart count is in the processes' environment, and absent for a first attempt. A step may
    have dropped it from its own. So the highest count of a job's processes is used.

    A count of 0 overrides all others. A batch script sets 0 when it finds that its count is
    inherited from the job that submitted it (jobscripts/lib/attempt.sh). Raises SlurmError.
    """
    result = runner.run([f"{bin_dir}/scontrol", "listpids"], timeout=LOCAL_TIMEOUT)
    if result.returncode and "No job steps" not in result.stdout + result.stderr:
        raise SlurmError(f"slurmd did not list this node's jobs: {result.stderr.strip()[-200:]}")
    counts_by_job: dict[int, set[int]] = {}
    for pid, job in _processes(result.stdout):
        counts_by_job.setdefault(job, set()).update(_restart_counts(proc / str(pid) / "environ"))
    return frozenset(
        (job, 0 if 0 in counts else max(counts, default=0)) for job, counts in counts_by_job.items()
    )


def _processes(listing: str) -> Iterable[tuple[int, int]]:
    """Yield pid and job id of each line of `scontrol listpids`.

    The columns are PID JOBID STEPID LOCALID GLOBALID, under a header.
    """
    for line in listing.splitlines():
        columns = line.split()
        if len(columns) > 1 and columns[0].isdecimal() and columns[1].isdecimal():
            yield int(columns[0]), int(columns[1])


def _restart_counts(environ: Path) -> Iterable[int]:
    """Return the restart count of a process; nothing without one."""
    try:
        match = _RESTARTS.search(environ.read_bytes())
    except OSError:
        return ()  # the process has ended since
    return (int(match.group(1)),) if match else ()
