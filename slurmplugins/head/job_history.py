"""Jobs as squeue and sacct report them, for explanations. The engine itself needs fewer fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slurmplugins.errors import BadName, SlurmRefused
from slurmplugins.head.report import AttemptReport, JobReport
from slurmplugins.model.hostlist import expand
from slurmplugins.slurm import json_parser
from slurmplugins.slurm.json_parser import NO_SUCH_JOB, count, failure, records, strict_number, text
from slurmplugins.slurm.scontrol import read_jobs

if TYPE_CHECKING:
    from slurmplugins.model.node import JobId
    from slurmplugins.system.command import Runner

TIMEOUT: Final = 30.0

_SACCT: Final = ("JobID", "JobIDRaw", "State", "ExitCode", "NodeList", "Start", "End")


class JobReader:
    """Reads jobs from squeue and sacct. Every method raises SlurmError.

    An unknown job is no error: there are then no facts.
    """

    def __init__(self, runner: Runner, bin_dir: str) -> None:
        self._runner = runner
        self._bin = bin_dir

    def jobs(self, job: int | None = None) -> tuple[JobReport, ...]:
        """Return the jobs that slurmctld knows.

        These are pending jobs, running ones, and those that ended minutes ago. With a number, it is
        that job, or every task of that array.
        """
        try:
            job_records = self._records(job)
        except SlurmRefused as refusal:
            if job is not None and NO_SUCH_JOB in refusal.message:
                return ()
            raise
        return tuple(
            job_report for item in job_records if (job_report := _job_report(item)) is not None
        )

    def _records(self, job: int | None) -> list[Any]:
        if job is not None:
            return read_jobs(self._runner, f"{self._bin}/scontrol", job, timeout=TIMEOUT)
        argv = [f"{self._bin}/squeue", "--json"]
        return records(argv, self._runner.run(argv, timeout=TIMEOUT), "jobs")

    def attempts(self, name: JobId) -> tuple[AttemptReport, ...]:
        """Return every attempt of the job, oldest first.

        Requeued attempts are included.
        """
        argv = [
            "/usr/bin/env",
            "SLURM_TIME_FORMAT=%s",
            f"{self._bin}/sacct",
            *("--duplicates", "--allocations", "--noheader", "--parsable2"),
            f"--jobs={name}",
            f"--format={','.join(_SACCT)}",
        ]
        completed_process = self._runner.run(argv, timeout=TIMEOUT)
        if completed_process.returncode:
            raise failure(argv, completed_process)
        lines = completed_process.stdout.splitlines()
        rows = [row for line in lines if len(row := line.split("|")) == len(_SACCT)]
        # For an array's number, which is its last task's too, sacct lists every task.
        column = 1 if name.task is None else 0
        return tuple(_attempt_report(row) for row in rows if row[column] == str(name))


def _attempt_report(row: list[str]) -> AttemptReport:
    _, job, state, exit_code, nodes, start, end = row
    return AttemptReport(
        state=state,
        exit_code=exit_code,
        nodes="" if nodes == "None assigned" else nodes,
        started_at=float(start) if start.isdecimal() else None,
        ended_at=float(end) if end.isdecimal() else None,
        job=int(job) if job.isdecimal() else 0,
    )


def _job_report(item: object) -> JobReport | None:
    """Parse a job's record; None if it is odd.

    People then still see the others.
    """
    if not isinstance(item, dict):
        return None
    try:
        return JobReport(
            id=count(item.get("job_id")),
            name=text(item.get("name")),
            user=text(item.get("user_name")),
            account=text(item.get("account")),
            partition=text(item.get("partition")),
            states=_states(item.get("job_state")),
            reason=text(item.get("state_reason")),
            held=item.get("hold") is True,
            nodes=_expand(text(item.get("nodes"))),
            node_count=count(item.get("node_count")),
            most_nodes=count(item.get("max_nodes")),
            restarts=count(item.get("restart_cnt")),
            submitted_at=_moment(item.get("submit_time")),
            eligible_at=_moment(item.get("eligible_time")),
            started_at=_moment(item.get("start_time")),
            admin_comment=text(item.get("admin_comment")),
            comment=text(item.get("comment")),
            array=json_parser.array_job_id(item),
            task=json_parser.job_id(item).task,
            waiting=json_parser.waiting_tasks(item),
        )
    except ValueError:
        return None


def _states(value: object) -> tuple[str, ...]:
    """Return the states in Slurm's order."""
    return tuple(map(text, value if isinstance(value, list) else text(value).split(",")))


def _expand(hostlist: str) -> tuple[str, ...]:
    """Return the node names, or the hostlist unchanged.

    It is unchanged where its nodes are not ours.
    """
    try:
        return expand(hostlist)
    except BadName:
        return (hostlist,)


def _moment(value: object) -> float | None:
    """Return a time; Slurm writes 0 for none."""
    return strict_number(value) or None
