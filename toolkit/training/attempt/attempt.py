"""Read from the environment which attempt of which job this process belongs to.

The environment is read once. The folder that fences the attempt off is in `fencing`.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolkit.training.attempt.fencing import UNCLAIMED, Owner

PATIENCE = (1, 1, 3, 5, 10, 20, 20)
"""Seconds between tries of a call that may fail for a minute.

jobscripts/lib/attempt.sh has the same pauses.
"""

STOP_DIR = "/shared/.toolkit/stop"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A start of a job.

    Every requeue keeps the job id and adds one to the restart count.
    """

    job_id: str
    restart_count: int
    run_dir: Path
    stop_dir: Path
    node: str
    job_name: str
    user: str
    account: str
    started_at: float | None  # epoch seconds when the batch script began; None without one
    judged: bool = False  # the batch script judges the attempt's end
    owner: Owner = UNCLAIMED

    @property
    def key(self) -> str:
        """Return the name of the attempt's files, unique among the run's attempts."""
        return f"{self.job_id}.{self.restart_count}"

    @property
    def failed(self) -> Literal["FAILED"] | None:
        """Return the state that a failure gives the run's record.

        None when the batch script judges the attempt: it may requeue the job.
        """
        return None if self.judged else "FAILED"

    @property
    def stop_files(self) -> tuple[Path, Path]:
        """Return the two files in which a stop request may appear.

        The node agent writes the first one, the batch script's trap the second.
        """
        return self.stop_dir / f"{self.key}.json", self.run_dir / f"stop.{self.key}.json"

    @property
    def verdict_file(self) -> Path:
        """Return the file in which the batch script finds the verdict."""
        return self.run_dir / f"verdict.{self.key}.json"


def current(environment: Mapping[str, str] = os.environ) -> Attempt:
    """Return the attempt of this process.

    Outside Slurm it is job `local` in TOOLKIT_RUN_DIR, or in ./run. The restart count comes from
    Slurm. A job that was submitted from another job may inherit a count that is not its own. A
    script that sources preflight.sh has the count from slurmctld. Raises ValueError when
    SLURM_JOB_ID is not a job id.
    """
    job_id = environment.get("SLURM_JOB_ID", "local")
    if not job_id.isalnum():
        raise ValueError(f"SLURM_JOB_ID is not a job id: {job_id!r}")
    # Slurm leaves the variable unset, not 0, on the first start.
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
    """Return the owner that alone may commit and delete in `folder`.

    It is this attempt's owner when `folder` is in its run folder, and `UNCLAIMED` elsewhere.
    """
    attempt = current()
    place = folder.parent.resolve() / folder.name  # the folder itself may be a link to elsewhere
    return attempt.owner if place.is_relative_to(attempt.run_dir) else UNCLAIMED


def _own(environment: Mapping[str, str], key: str) -> Mapping[str, str]:
    """Drop the values that preflight.sh set for the submitting job.

    The name of an attempt's fence folder begins with the attempt's key, so a foreign one is
    recognised.
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
