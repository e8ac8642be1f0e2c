"""Read from the environment which attempt of which job this process belongs to.

The environment is read once. The folder that fences the attempt off is in `fencing`.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolkit.training.attempt.fencing import UNCLAIMED, Fence

RETRY_PAUSES = (1, 1, 3, 5, 10, 20, 20)
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
    judged_by_script: bool = False  # the batch script judges the attempt's end
    fence: Fence = UNCLAIMED

    @property
    def key(self) -> str:
        """Return the name of the attempt's files, unique among the run's attempts."""
        return f"{self.job_id}.{self.restart_count}"

    @property
    def failure_status(self) -> Literal["FAILED"] | None:
        """Return the state that a failure gives the run's record.

        None when the batch script judges the attempt: it may requeue the job.
        """
        return None if self.judged_by_script else "FAILED"

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
    environment = _without_inherited(environment, f"{job_id}.{restart_count}")
    fence_folder = environment.get("TOOLKIT_RUN_OWNER")
    return Attempt(
        job_id=job_id,
        restart_count=restart_count,
        run_dir=Path(environment.get("TOOLKIT_RUN_DIR") or "run").resolve(),
        stop_dir=Path(environment.get("TOOLKIT_STOP_DIR", STOP_DIR)),
        node=environment.get("SLURMD_NODENAME") or socket.gethostname(),
        job_name=environment.get("SLURM_JOB_NAME", "local"),
        user=environment.get("SLURM_JOB_USER") or environment.get("USER", "unknown"),
        account=environment.get("SLURM_JOB_ACCOUNT", ""),
        started_at=_parse_seconds(environment.get("TOOLKIT_ATTEMPT_STARTED")),
        judged_by_script=environment.get("TOOLKIT_JUDGED_ATTEMPT") == f"{job_id}.{restart_count}",
        fence=Fence(Path(fence_folder)) if fence_folder else UNCLAIMED,
    )


def fence_of(folder: Path) -> Fence:
    """Return the owner that alone may commit and delete in `folder`.

    It is this attempt's owner when `folder` is in its run folder, and `UNCLAIMED` elsewhere.
    """
    attempt = current()
    place = folder.parent.resolve() / folder.name  # the folder itself may be a link to elsewhere
    return attempt.fence if place.is_relative_to(attempt.run_dir) else UNCLAIMED


def _without_inherited(environment: Mapping[str, str], key: str) -> Mapping[str, str]:
    """Drop the values that preflight.sh set for the submitting job.

    The name of an attempt's fence folder begins with the attempt's key, so a foreign one is
    recognised.
    """
    fence_folder = Path(environment.get("TOOLKIT_RUN_OWNER", ""))
    if not fence_folder.name or fence_folder.name.startswith(f"{key}."):
        return environment
    inherited = {"TOOLKIT_RUN_OWNER", "TOOLKIT_ATTEMPT_STARTED"}
    if fence_folder.is_relative_to(environment.get("TOOLKIT_RUN_DIR") or "run"):
        inherited.add("TOOLKIT_RUN_DIR")
    return {name: value for name, value in environment.items() if name not in inherited}


def _parse_seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
