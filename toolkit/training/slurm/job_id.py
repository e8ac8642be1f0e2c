"""Name a job so that scontrol acts on it and on no other.

The last task of a job array has the array's own id. scontrol takes that id for every task: it would
requeue, hold and rewrite them all. Any other job's id is its own.

Other array variables in the environment may belong to the job that submitted this one.
"""

import os
from collections.abc import Mapping
from typing import Any


def task_name(job_id: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the name by which scontrol finds this process's job alone.

    It is ARRAY_TASK when the job has its array's id, else the job's id.
    """
    task = environment.get("SLURM_ARRAY_TASK_ID")
    has_array_id = (
        environment.get("SLURM_JOB_ID") == job_id == environment.get("SLURM_ARRAY_JOB_ID")
    )
    return f"{job_id}_{task}" if has_array_id and task else job_id


def own_record(answer: Mapping[str, Any], job_id: str) -> Mapping[str, Any]:
    """Return the job's own record from `scontrol show job --json`.

    For an array task the answer may hold the whole array. Raises LookupError.
    """
    for record in answer["jobs"]:
        if isinstance(record, dict) and str(record.get("job_id")) == job_id:
            return record
    raise LookupError(f"no job {job_id}")
