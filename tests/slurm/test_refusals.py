"""Jobs that EC2 refuses: their comments, and the time until these.

One fault affects the whole cloud, and one law is a time. So these tests run beside no other.
"""

from __future__ import annotations

import json

import pytest

from slurmplugins.config import paths
from slurmplugins.system.log_events import LogEvent
from tests.slurm.conftest import toolkit
from tests.slurm.instances import LIVE, instances_of_pool
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
DECISIONS = paths.DECISIONS
SMOKE = "/shared/jobscripts/smoke.sbatch"
GOVERN = ("runuser", "-u", "slurm", "--", "/opt/slurm-toolkit/bin/slurm-govern")


def submit(cluster, *argv):
    return cluster.as_user("sbatch", "--parsable", "--chdir=/shared/home/ada", *argv).strip()


@pytest.fixture(scope="module", autouse=True)
def _no_instances(cluster):
    """A pool without instances, so that a job needs a launch.

    A failed test of the same lane may have left jobs; they are cancelled.
    """
    cluster.run("sh", "-c", "scancel --user=ada || true")
    until("no instance of the pool", lambda: not instances_of_pool(cluster, "gpu", *LIVE))


def given_back_entries(cluster, job: str) -> list[dict]:
    """Return the head's decision-log entries of nodes given back for this job."""
    log = cluster.run("sh", "-c", f"cat {DECISIONS} 2>/dev/null || true").splitlines()
    return [
        line
        for line in map(json.loads, log)
        if line["event"] == LogEvent.NODES_GIVEN_BACK and str(line.get("job")) == job
    ]


def first_attempt(cluster, job: str) -> tuple[int, int] | None:
    """Return the times of the first attempt's submission and end.

    None until it has ended."""
    sacct = ["sacct", "--duplicates", "--noheader", "--parsable2", "--allocations"]
    words = [*sacct, "--format=Submit,End", "--jobs", job]
    rows = cluster.run("env", "SLURM_TIME_FORMAT=%s", *words).splitlines()
    times = min((row.split("|") for row in rows), default=["", ""])
    return (int(times[0]), int(times[1])) if times[1].isdigit() else None


def test_nodes_without_capacity_are_given_back_within_a_minute_with_ec2s_code(cluster):
    """Exhaust the only type, and read the first attempt's end.

    slurmctld ends it when its nodes are set down. Both times are of the head's clock.
    """
    toolkit("local", "exhaust", "g5.xlarge")
    try:
        job = submit(cluster, SMOKE)
        comment = until(
            "EC2's answer in the job's AdminComment",
            lambda: cluster.job(job)["admin_comment"],
        )
    finally:
        toolkit("local", "exhaust", "g5.xlarge", "--restore")
    first = given_back_entries(cluster, job)[0]
    submitted, ended = until("the first attempt's end", lambda: first_attempt(cluster, job))
    cluster.run("scancel", job)
    assert "InsufficientInstanceCapacity" in comment
    assert first["code"] == "InsufficientInstanceCapacity"
    assert ended - submitted <= 60


def test_a_job_over_the_quota_is_held_and_runs_when_released(cluster):
    """Refuse a launch with EC2's quota error.

    Another launch would fail as well, so the job waits for a person. `toolkit why` tells the person
    the remedy.
    """
    toolkit("local", "throttle", "RunInstances", "--code", "VcpuLimitExceeded")
    try:
        job = submit(cluster, "--export=ALL,TOOLKIT_MIN_DISK_MIB_S=0", SMOKE)
        until("EC2's answer", lambda: "VcpuLimitExceeded" in cluster.job(job)["admin_comment"])
        until("the hold", lambda: cluster.job(job)["hold"])
        assert "scontrol release" in cluster.toolkit("why", job).stdout
    finally:
        toolkit("local", "throttle", "--clear")
    cluster.run("scontrol", "release", job)
    until("the job's end", lambda: cluster.job(job)["job_state"] == ["COMPLETED"])


def test_no_job_of_racks_bursts_while_ec2_does_not_answer(cluster):
    """Refuse reconcile's reads, and submit a job.

    The racks can never run it, so it would go at once.
    """

    def planned() -> dict:
        return json.loads(cluster.run(*GOVERN, "--plan"))

    toolkit("local", "throttle", "DescribeInstances", "--code", "UnauthorizedOperation")
    job = ""
    try:
        until("reconcile's note", lambda: "blocked" in planned()["problems"].get("batch", ""))
        job = submit(
            cluster,
            "--partition=silo",
            "--time=60",
            "--comment=s3-data",
            "--wrap=exit",
            "--requeue",
        )
        cluster.run(*GOVERN)
        (decision,) = [item for item in planned()["decisions"] if str(item["job"]) == job]
        assert (decision["reason"], decision["bursts"]) == ("cloud-problem", False)
        assert "reconcile is blocked" in decision["text"]
        assert cluster.job(job)["partition"] == "silo"
    finally:
        toolkit("local", "throttle", "--clear")
        if job:
            cluster.run("scancel", job)
