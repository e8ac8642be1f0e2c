"""Give MLflow runs the end that their jobs had.

A training job ends its run itself, unless nobody is left on its nodes to do so: after scancel and
KillWait, a lost machine, a full disk. What Slurm's database says of the job then decides. A run
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
"""How long a failed job stays in slurmctld (MinJobAge), where it can still be requeued by hand or
by the pass that looks after jobs whose node died. Cancelled and completed jobs don't wait."""

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
    """One row of sacct: an attempt of a job. `ended` is None while it has no end."""

    job: int
    state: str
    ended: float | None


@dataclass(frozen=True, slots=True)
class Settled:
    """A run and the end it was given."""

    run_id: str
    job: int
    status: str
    state: str
    ended: float | None


def decide(
    runs: Iterable[Run], rows: Iterable[JobEnd], queued: frozenset[int], now: float
) -> tuple[Settled, ...]:
    """The runs that are over, though MLflow has them as RUNNING. Pure.

    A job is over when it isn't in the queue and the last of its attempts has ended for good. A job
    that Slurm's database doesn't know says nothing.
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
    """Look at every RUNNING run of a job and end those that are over; those it ended.

    Raises TrackingError or SlurmUnreachable having ended nothing it isn't sure of.
    """
    runs = [run for run in mlflow.search("attributes.status = 'RUNNING'") if run.job is not None]
    if not runs:
        return ()
    # The queue after the runs: a job that begins in between is there.
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
        return None  # a het job's part, or not a row
    # "CANCELLED by 1001" names who did it.
    state = fields[1].split(" ")[0].rstrip("+")
    return JobEnd(int(fields[0]), state, float(fields[2]) if fields[2].isdigit() else None)


def _queued(runner: Runner) -> frozenset[int]:
    """Jobs that wait, run or are on their way out; squeue leaves ended ones out by itself."""
    argv = ["squeue", "--all", "--noheader", "--format=%A"]
    words = _ask(runner, argv).split()
    return frozenset(int(word) for word in words if word.isdigit())


def _ask(runner: Runner, argv: list[str]) -> str:
    done = runner.run(argv, timeout=TIMEOUT)
    if done.returncode != 0:
        raise SlurmUnreachable(f"{argv[0]}: exit code {done.returncode}: {done.stderr[-500:]}")
    return done.stdout
