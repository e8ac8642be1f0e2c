"""How scontrol names a job and no other.

The last task of a job array has the array's own number, and scontrol takes that number for every
task: it would requeue, hold and rewrite them all. Any other job's number is its own; what else the
environment says of an array may be of the job that this one was submitted from.
"""

import os
from collections.abc import Mapping
from typing import Any


def task_name(job_id: str, environment: Mapping[str, str] = os.environ) -> str:
    """ARRAY_TASK where this process's job has its array's number, else the job's number."""
    task = environment.get("SLURM_ARRAY_TASK_ID")
    last = environment.get("SLURM_JOB_ID") == job_id == environment.get("SLURM_ARRAY_JOB_ID")
    return f"{job_id}_{task}" if last and task else job_id


def own_record(answer: Mapping[str, Any], job_id: str) -> Mapping[str, Any]:
    """The job's own in what `scontrol show job --json` says, which is the whole array for a task.

    Raises LookupError.
    """
    for item in answer["jobs"]:
        if isinstance(item, dict) and str(item.get("job_id")) == job_id:
            return item
    raise LookupError(f"no job {job_id}")
