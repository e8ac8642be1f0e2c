"""Was this job cancelled? SIGTERM alone doesn't say."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from toolkit.training.slurm.job import Call
from toolkit.training.slurm.job_id import task_name

CANCELLED_TIMEOUT = 10  # seconds: within the 30 (KillWait) that SIGTERM leaves


def cancelled(
    job_id: str, environment: Mapping[str, str] = os.environ, call: Call | None = None
) -> bool:
    """Whether somebody cancelled this process's job; False also where Slurm can't be asked.

    Asked after SIGTERM, within the 30 s (KillWait) that Slurm leaves it: a lost peer or a
    preemption sends the same signal, and those come back.
    """
    if environment.get("SLURM_JOB_ID") != job_id or (call is None and not shutil.which("scontrol")):
        return False
    try:
        name = task_name(job_id, environment)
        text = (call or _run)(["scontrol", "show", "job", name, "--oneliner"])
    except (OSError, subprocess.SubprocessError):
        return False
    return re.search(r"\bJobState=CANCELLED\b", text) is not None


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(
        list(argv), capture_output=True, text=True, timeout=CANCELLED_TIMEOUT, check=True
    )
    return done.stdout
