"""A job with the copies of its data on real Slurm: by one command, both ways, in their order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.slurm.training_job import HOME, OVER
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(1200, func_only=True)]
SCRIPT = f"""#!/bin/bash
#SBATCH --requeue
#SBATCH --open-mode=append
mkdir -p {HOME}/runs/$SLURM_JOB_ID
PYTHONPATH=/shared/lib exec /usr/bin/python3 -m toolkit.datasets get staged@1 \\
  {HOME}/runs/$SLURM_JOB_ID/result
"""


def test_one_command_brings_data_in_and_results_home(cluster):
    cluster.as_user("sh", "-c", 'mkdir -p "$1" && echo digits >"$1/words"', "sh", f"{HOME}/staged")
    script = cluster.write(f"{HOME}/staged.sbatch", SCRIPT)
    stages = ("--stage-in", f"staged={HOME}/staged", "--stage-out", f"{HOME}/brought")
    words = ("--racks=rack", "--cloud=batch", "--partition=batch", Path(script).name)
    answer = cluster.toolkit("submit", "--json", "--user=ada", *stages, *words).stdout
    chain = json.loads(answer)["chain"]
    assert [item["role"] for item in chain] == ["stage-in", "job", "put-run", "get"]
    records = until("the chain", lambda: ended(cluster, [item["job"] for item in chain]))
    assert [record["job_state"] for record in records] == [["COMPLETED"]] * 4
    assert cluster.run("cat", f"{HOME}/brought/result/words") == "digits\n"
    starts = [record["start_time"]["number"] for record in records]
    assert starts == sorted(starts)
    assert [record["partition"] for record in records] == ["rack", "batch", "batch", "rack"]


def ended(cluster, jobs):
    """Return the jobs' records once the last is over; None before."""
    records = [cluster.job(job) for job in jobs]
    return records if {*records[-1]["job_state"]} <= OVER else None
