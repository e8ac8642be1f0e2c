"""Give MLflow runs the end that their jobs had.

A training job ends its run itself, unless no process is left on its nodes to do so. That happens
after scancel and KillWait, a lost instance, or a full disk. Slurm's database then decides. A run
whose job may come back is left RUNNING, for the next attempt goes on with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import SlurmUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from slurmplugins.head.mlflow import Mlflow, Run
    from slurmplugins.system.command import Runner

QUIET_SECONDS: Final = 300.0
"""Seconds that a failed job stays in slurmctld (MinJobAge). Until then it can still be requeued: by
hand, or by the reconcile pass that looks after jobs whose node died. Cancelled and completed jobs
don't wait."""

JOBS_IN_CALL: Final = 500
TIMEOUT: Final = 60.0

_STATUS: Final = {
    "COMPLETED": "FINISHED",
    "CANCELLED": "KILLED",
    "PREEMPTED": "KILLED",
    "REVOKED": "KILLED",
    "BOOT_FAIL": "FAILED",
    "DEADLINE": "FAILED",
    "FAILED": "FAILED",
    "LAUNCH_FAILED": "FAILED",
    "NODE_FAIL": "FAILED",
    "OUT_OF_MEMORY": "FAILED",
    "TIMEOUT": "FAILED",
}
_AT_ONCE: Final = frozenset({"CANCELLED", "COMPLETED"})


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A row of sacct: an attempt of a job."""

    job: int
    state: str
    ended: float | None
    """Seconds since the epoch; None while the attempt has no end."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A run and the end that it was given."""

    run_id: str
    job: int
    status: str
    state: str
    ended: float | None


def decide(
    runs: Iterable[Run], rows: Iterable[JobEnd], queued: frozenset[int], now: float
) -> tuple[Settled, ...]:
    """Return the runs that are over but RUNNING in MLflow. Pure.

    A job is over when it isn't in the queue and the last of its attempts has ended for good. A job
    that is missing from Slurm's database decides nothing.
    """
    last: dict[int, JobEnd] = {}
    for row in rows:
        if row.job not in last or _end(row) >= _end(last[row.job]):
            last[row.job] = row
    found = []
    for run in runs:
        end = last.get(run.job) if run.job is not None else None
        if end is None or end.ended is None or end.job in queued or end.state not in _STATUS:
            continue
        if end.state in _AT_ONCE or now - end.ended >= QUIET_SECONDS:
            found.append(Settled(run.run_id, end.job, _STATUS[end.state], end.state, end.ended))
    return tuple(found)


def settle(mlflow: Mlflow, runner: Runner, now: float, *, dry_run: bool) -> tuple[Settled, ...]:
    """End the RUNNING runs of jobs that are over.

    Returns the runs that it ended, or would end in a dry run. Safe to repeat. Raises TrackingError
    or SlurmUnreachable; until then it has ended only runs that are surely over.
    """
    runs = [run for run in mlflow.search("attributes.status = 'RUNNING'") if run.job is not None]
    if not runs:
        return ()
    # Read the queue after the runs: a job that begins in between is then in it.
    found = decide(runs, _rows(runner, runs), _queued(runner), now)
    for one in () if dry_run else found:
        mlflow.tag(one.run_id, "toolkit.ended_by", f"sacct: {one.state}")
        mlflow.end(one.run_id, one.status, one.ended)
    return found


def _end(row: JobEnd) -> float:
    return float("inf") if row.ended is None else row.ended


def _rows(runner: Runner, runs: Iterable[Run]) -> list[JobEnd]:
    jobs = sorted({run.job for run in runs if run.job is not None})
    rows: list[JobEnd] = []
    for start in range(0, len(jobs), JOBS_IN_CALL):
        asked = ",".join(str(job) for job in jobs[start : start + JOBS_IN_CALL])
        argv = [
            *("env", "TZ=UTC", "SLURM_TIME_FORMAT=%s"),
            *("sacct", "--allusers", "--duplicates", "--allocations", "--parsable2", "--noheader"),
            *("--format=JobIDRaw,State,End", f"--jobs={asked}"),
        ]
        rows += [row for line in _ask(runner, argv).splitlines() if (row := _row(line))]
    return rows


def _row(line: str) -> JobEnd | None:
    fields = line.split("|")
    if len(fields) != len(("job", "state", "end")) or not fields[0].isdigit():
        return None  # a het job's component, or no row
    # "CANCELLED by 1001" names the user.
    state = fields[1].split(" ")[0].rstrip("+")
    return JobEnd(int(fields[0]), state, float(fields[2]) if fields[2].isdigit() else None)


def _queued(runner: Runner) -> frozenset[int]:
    """Return jobs that wait, run or are about to end.

    squeue leaves out ended ones by itself.
    """
    argv = ["squeue", "--all", "--noheader", "--format=%A"]
    words = _ask(runner, argv).split()
    return frozenset(int(word) for word in words if word.isdigit())


def _ask(runner: Runner, argv: list[str]) -> str:
    done = runner.run(argv, timeout=TIMEOUT)
    if done.returncode != 0:
        raise SlurmUnreachable(f"{argv[0]}: exit code {done.returncode}: {done.stderr[-500:]}")
    return done.stdout
