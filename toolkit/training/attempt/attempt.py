"""Which attempt of which job this process belongs to, read from the environment once."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolkit.training.attempt.fencing import UNCLAIMED, Owner

PATIENCE = (1, 1, 3, 5, 10, 20, 20)
"""Seconds between tries of what may be away for a minute, as jobscripts/lib/attempt.sh has them."""

STOP_DIR = "/shared/.toolkit/stop"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of one job: the same job id and the next restart count after every requeue."""

    job_id: str
    restart_count: int
    run_dir: Path
    stop_dir: Path
    node: str
    job_name: str
    user: str
    account: str
    started_at: float | None  # when the batch script began, where one did
    judged: bool = False  # its batch script will say what its end is worth
    owner: Owner = UNCLAIMED

    @property
    def key(self) -> str:
        """What the files of this attempt are named by: unlike any other attempt's in the run."""
        return f"{self.job_id}.{self.restart_count}"

    @property
    def failed(self) -> Literal["FAILED"] | None:
        """What its failure makes of the run's record; None where that is the batch script's to say,
        which may bring the job back.
        """
        return None if self.judged else "FAILED"

    @property
    def stop_files(self) -> tuple[Path, Path]:
        """Where a stop request appears: from the node agent, and from the batch script's trap."""
        return self.stop_dir / f"{self.key}.json", self.run_dir / f"stop.{self.key}.json"

    @property
    def verdict_file(self) -> Path:
        """Where the batch script looks for what became of the attempt."""
        return self.run_dir / f"verdict.{self.key}.json"


def current(environment: Mapping[str, str] = os.environ) -> Attempt:
    """The attempt of this process; outside Slurm, job `local` in TOOLKIT_RUN_DIR or ./run.

    The restart count is what Slurm or the job that this one was submitted from has said; a script
    that sources preflight.sh has it from slurmctld.
    """
    job_id = environment.get("SLURM_JOB_ID", "local")
    if not job_id.isalnum():
        raise ValueError(f"SLURM_JOB_ID is not a job id: {job_id!r}")
    # Slurm leaves it unset, not 0, on the first start.
    restart_count = int(environment.get("SLURM_RESTART_COUNT") or 0)
    environment = _own(environment, f"{job_id}.{restart_count}")
    place = environment.get("TOOLKIT_RUN_OWNER")
    return Attempt(
        job_id=job_id,
        restart_count=restart_count,
        run_dir=Path(environment.get("TOOLKIT_RUN_DIR") or "run").resolve(),
        stop_dir=Path(environment.get("TOOLKIT_STOP_DIR", STOP_DIR)),
        node=environment.get("SLURMD_NODENAME") or socket.gethostname(),
        job_name=environment.get("SLURM_JOB_NAME", "local"),
        user=environment.get("SLURM_JOB_USER") or environment.get("USER", "unknown"),
        account=environment.get("SLURM_JOB_ACCOUNT", ""),
        started_at=_seconds(environment.get("TOOLKIT_ATTEMPT_STARTED")),
        judged=environment.get("TOOLKIT_JUDGED_ATTEMPT") == f"{job_id}.{restart_count}",
        owner=Owner(Path(place)) if place else UNCLAIMED,
    )


def owner_of(folder: Path) -> Owner:
    """Who alone may commit and delete in `folder`: this attempt, where it is in its run folder."""
    attempt = current()
    place = folder.parent.resolve() / folder.name  # itself it may be a link to elsewhere
    return attempt.owner if place.is_relative_to(attempt.run_dir) else UNCLAIMED


def _own(environment: Mapping[str, str], key: str) -> Mapping[str, str]:
    """Without what preflight.sh found for the job that this one was submitted from.

    The place in its run folder is named by the attempt that it was made for.
    """
    place = Path(environment.get("TOOLKIT_RUN_OWNER", ""))
    if not place.name or place.name.startswith(f"{key}."):
        return environment
    theirs = {"TOOLKIT_RUN_OWNER", "TOOLKIT_ATTEMPT_STARTED"}
    if place.is_relative_to(environment.get("TOOLKIT_RUN_DIR") or "run"):
        theirs.add("TOOLKIT_RUN_DIR")
    return {name: value for name, value in environment.items() if name not in theirs}


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
