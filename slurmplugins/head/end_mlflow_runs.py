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

    from slurmplugins.head.mlflow import Mlflow, MlflowRun
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
_FINAL_STATES: Final = frozenset({"CANCELLED", "COMPLETED"})


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """A row of sacct: an attempt of a job."""

    job: int
    state: str
    ended_at: float | None
    """Seconds since the epoch; None while the attempt has no end."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run and the end that it was given."""

    run_id: str
    job: int
    status: str
    state: str
    ended: float | None


def runs_to_end(
    runs: Iterable[MlflowRun],
    attempts: Iterable[AttemptEnd],
    queued_jobs: frozenset[int],
    now: float,
) -> tuple[EndedRun, ...]:
    """Return the RUNNING MLflow runs whose jobs have ended. Pure.

    A job has ended when it isn't in the queue and the last of its attempts has ended for good. A
    job that is missing from Slurm's database decides nothing.
    """
    last_attempts: dict[int, AttemptEnd] = {}
    for attempt in sorted(attempts, key=_end_time):
        last_attempts[attempt.job] = attempt
    ended_runs = []
    for run in runs:
        end = last_attempts.get(run.job) if run.job is not None else None
        if end is None or end.ended_at is None or end.job in queued_jobs:
            continue
        status = _STATUS.get(end.state)
        if status and (end.state in _FINAL_STATES or now - end.ended_at >= QUIET_SECONDS):
            ended_runs.append(EndedRun(run.run_id, end.job, status, end.state, end.ended_at))
    return tuple(ended_runs)


def end_runs(mlflow: Mlflow, runner: Runner, now: float, *, dry_run: bool) -> tuple[EndedRun, ...]:
    """End the RUNNING runs of jobs that have ended.

    Returns the runs that it ended, or would end in a dry run. Safe to repeat. Raises TrackingError
    or SlurmUnreachable; until then it has ended only runs whose jobs have surely ended.
    """
    runs = [run for run in mlflow.search("attributes.status = 'RUNNING'") if run.job is not None]
    if not runs:
        return ()
    # Read the queue after the runs: a job that begins in between is then in it.
    ended_runs = runs_to_end(runs, _read_attempts(runner, runs), _read_queue(runner), now)
    for ended_run in () if dry_run else ended_runs:
        mlflow.tag(ended_run.run_id, "toolkit.ended_by", f"sacct: {ended_run.state}")
        mlflow.end(ended_run.run_id, ended_run.status, ended_run.ended)
    return ended_runs


def _end_time(attempt: AttemptEnd) -> float:
    return float("inf") if attempt.ended_at is None else attempt.ended_at


def _read_attempts(runner: Runner, runs: Iterable[MlflowRun]) -> list[AttemptEnd]:
    jobs = sorted({run.job for run in runs if run.job is not None})
    attempts: list[AttemptEnd] = []
    for start in range(0, len(jobs), JOBS_IN_CALL):
        job_ids = ",".join(str(job) for job in jobs[start : start + JOBS_IN_CALL])
        argv = [
            *("env", "TZ=UTC", "SLURM_TIME_FORMAT=%s"),
            *("sacct", "--allusers", "--duplicates", "--allocations", "--parsable2", "--noheader"),
            *("--format=JobIDRaw,State,End", f"--jobs={job_ids}"),
        ]
        lines = _run_command(runner, argv).splitlines()
        attempts += [attempt for line in lines if (attempt := _parse_attempt(line))]
    return attempts


def _parse_attempt(line: str) -> AttemptEnd | None:
    fields = line.split("|")
    if len(fields) != len(("job", "state", "end")) or not fields[0].isdigit():
        return None  # a het job's component, or no row
    # "CANCELLED by 1001" names the user.
    state = fields[1].split(" ")[0].rstrip("+")
    return AttemptEnd(int(fields[0]), state, float(fields[2]) if fields[2].isdigit() else None)


def _read_queue(runner: Runner) -> frozenset[int]:
    """Return jobs that wait, run or are about to end.

    squeue leaves out ended ones by itself.
    """
    argv = ["squeue", "--all", "--noheader", "--format=%A"]
    words = _run_command(runner, argv).split()
    return frozenset(int(word) for word in words if word.isdigit())


def _run_command(runner: Runner, argv: list[str]) -> str:
    completed = runner.run(argv, timeout=TIMEOUT)
    if completed.returncode != 0:
        text = f"{argv[0]}: exit code {completed.returncode}: {completed.stderr[-500:]}"
        raise SlurmUnreachable(text)
    return completed.stdout
