"""Jobs as squeue and sacct tell of them, to explain; what resume needs of jobs is in `slurm`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from slurmplugins import job_name, names
from slurmplugins.errors import BadName, SlurmRefused, SlurmUnreachable
from slurmplugins.fact_sheet import AttemptFact, JobFact
from slurmplugins.slurm_json import number

if TYPE_CHECKING:
    from slurmplugins.job_name import JobName
    from slurmplugins.runner import Completed, Runner

TIMEOUT: Final = 30.0

_SACCT: Final = ("JobID", "JobIDRaw", "State", "ExitCode", "NodeList", "Start", "End")


class JobReader:
    """Raises SlurmError. A job nobody knows is no error: there are then no facts."""

    def __init__(self, runner: Runner, bin_dir: str) -> None:
        self._runner = runner
        self._bin = bin_dir

    def jobs(self, job: int | None = None) -> tuple[JobFact, ...]:
        """Jobs that slurmctld knows: pending, running, and those that ended minutes ago.

        Of a number: that job, or every task of that array.
        """
        argv = [f"{self._bin}/squeue", "--json"]
        if job is not None:
            argv = [f"{self._bin}/scontrol", "show", "job", str(job), "--json"]
        done = self._runner.run(argv, timeout=TIMEOUT)
        if done.returncode and job is not None and "nvalid job id" in done.stdout + done.stderr:
            return ()
        try:
            found = json.loads(_said(done))["jobs"]
            return tuple(_job(item) for item in found if isinstance(item, dict))
        except (ValueError, KeyError, TypeError) as error:
            raise SlurmUnreachable(f"{argv[0]}: {error}") from error

    def attempts(self, name: JobName) -> tuple[AttemptFact, ...]:
        """Every run of the job, oldest first, requeued ones too."""
        argv = [
            "/usr/bin/env",
            "SLURM_TIME_FORMAT=%s",
            f"{self._bin}/sacct",
            *("--duplicates", "--allocations", "--noheader", "--parsable2"),
            f"--jobs={name}",
            f"--format={','.join(_SACCT)}",
        ]
        lines = _said(self._runner.run(argv, timeout=TIMEOUT)).splitlines()
        rows = [row for line in lines if len(row := line.split("|")) == len(_SACCT)]
        # Of an array's number, which is its last task's too, sacct tells of every task.
        column = 1 if name.task is None else 0
        return tuple(_attempt(row) for row in rows if row[column] == str(name))


def _said(done: Completed) -> str:
    if done.returncode:
        raise SlurmRefused((done.stderr or done.stdout).strip()[-300:])
    return done.stdout


def _attempt(row: list[str]) -> AttemptFact:
    _, job, state, exit_code, nodes, start, end = row
    return AttemptFact(
        state=state,
        exit_code=exit_code,
        nodes="" if nodes == "None assigned" else nodes,
        started_at=float(start) if start.isdecimal() else None,
        ended_at=float(end) if end.isdecimal() else None,
        job=int(job) if job.isdecimal() else 0,
    )


def _job(item: dict[str, Any]) -> JobFact:
    states = item.get("job_state") or ()
    return JobFact(
        id=int(_number(item.get("job_id")) or 0),
        name=str(item.get("name") or ""),
        user=str(item.get("user_name") or ""),
        account=str(item.get("account") or ""),
        partition=str(item.get("partition") or ""),
        states=tuple(states if isinstance(states, list) else str(states).split(",")),
        reason=str(item.get("state_reason") or ""),
        held=item.get("hold") is True,
        nodes=_expanded(str(item.get("nodes") or "")),
        node_count=int(_number(item.get("node_count")) or 0),
        most_nodes=int(_number(item.get("max_nodes")) or 0),
        restarts=int(_number(item.get("restart_cnt")) or 0),
        submitted_at=_number(item.get("submit_time")),
        eligible_at=_number(item.get("eligible_time")),
        started_at=_number(item.get("start_time")),
        admin_comment=str(item.get("admin_comment") or ""),
        comment=str(item.get("comment") or ""),
        array=job_name.array_of(item),
        task=job_name.of(item).task,
        waiting=job_name.waiting(item),
    )


def _expanded(hostlist: str) -> tuple[str, ...]:
    """Node names, or the hostlist as it is where the nodes are not of our kind."""
    try:
        return names.expand(hostlist)
    except BadName:
        return (hostlist,)


def _number(value: object) -> float | None:
    """0 is Slurm's word for no time."""
    return number(value) or None
