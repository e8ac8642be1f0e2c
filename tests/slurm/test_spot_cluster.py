"""The judge: a real cluster, deployed, trained on, billed. The tests run in this order."""

from __future__ import annotations

import json
import re
import subprocess
from decimal import Decimal

import pytest

from slurmplugins import decisions, paths
from tests.slurm.conftest import TOOLKIT, toolkit
from tests.slurm.machines import LIVE, machines
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(900, func_only=True)]
DECISIONS = paths.DECISIONS
SMOKE = "/shared/jobscripts/smoke.sbatch"
PLAYBOOK = ["ansible-playbook", "-i", "inventory.yml", "-e", "@../rendered/vars.json"]


def submit(cluster, *argv):
    return cluster.as_user("sbatch", "--parsable", "--chdir=/shared/home/ada", *argv).strip()


def play(cluster, book):
    return cluster.run(
        "env",
        "-C",
        "/opt/slurm-toolkit/bundle/ansible",
        *PLAYBOOK,
        book,
        timeout=300,
    )


def test_deploy_ends_with_a_cluster_that_status_calls_healthy(cluster):
    status = json.loads(cluster.toolkit("status", "--json").stdout)
    assert status["healthy"], status


def test_second_playbook_run_changes_nothing(cluster):
    recap = play(cluster, "site.yml")
    assert re.search(r"changed=0\s+unreachable=0\s+failed=0", recap), recap[-2000:]


def test_live_cluster_is_what_verify_asserts(cluster):
    assert "failed=0" in play(cluster, "verify.yml")


def test_impossible_request_is_refused_with_a_reason(cluster):
    done = subprocess.run(
        [
            *(str(TOOLKIT), "run", "--config", str(cluster.config), "--"),
            *("runuser", "-u", "ada", "--", "sbatch", "--gpus-per-node=64", SMOKE),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0
    assert "Requested node configuration is not available" in done.stderr


@pytest.fixture(scope="module")
def story(cluster):
    """What the demo tells, played once."""
    return cluster.story()


def test_training_survives_a_spot_interruption_and_scales_to_zero(cluster, story):
    story.submit()
    lost = story.train_until_interrupted()
    story.come_back(lost)
    story.finish()
    story.audit()
    until("no instance of the pool", lambda: not machines(cluster, "gpu", *LIVE), 150)


def test_both_attempts_are_one_mlflow_run(cluster, story):
    found = json.loads(cluster.toolkit("runs", "list", "--json").stdout)
    (run,) = [run for run in found if run["tags"].get("toolkit.job_id") == story.job]
    assert run["status"] == "FINISHED"
    assert run["tags"]["toolkit.attempts"] == "2"
    assert Decimal(run["tags"]["toolkit.cost_usd_estimate"]) > 0
    assert "loss" in run["metrics"]


def test_report_sums_to_the_instances_exactly(cluster):
    report = json.loads(cluster.toolkit("report", "--json").stdout)
    charges = sum((Decimal(charge["usd"]) for charge in report["charges"]), Decimal(0))
    machines = sum((Decimal(machine["total"]) for machine in report["instances"]), Decimal(0))
    assert charges == machines == Decimal(report["total"])
    assert {"ada"} <= {charge["user"] for charge in report["charges"]}


def given_back(cluster, job: str) -> list[dict]:
    """What the head's decision log has of nodes that this job could not have."""
    log = cluster.run("sh", "-c", f"cat {DECISIONS} 2>/dev/null || true").splitlines()
    return [
        line
        for line in map(json.loads, log)
        if line["event"] == decisions.GIVEN_BACK and str(line.get("job")) == job
    ]


def test_nodes_without_capacity_come_back_within_a_minute_with_ec2s_own_word(cluster):
    """By the head's clock: from the moment of the submission, as Slurm has it."""
    toolkit("local", "exhaust", "g5.xlarge")
    try:
        job = submit(cluster, SMOKE)
        submitted = cluster.job(job)["submit_time"]["number"]
        comment = until(
            "EC2's answer in the job's AdminComment",
            lambda: cluster.job(job)["admin_comment"],
        )
    finally:
        toolkit("local", "exhaust", "g5.xlarge", "--restore")
    first = given_back(cluster, job)[0]
    cluster.run("scancel", job)
    assert "InsufficientInstanceCapacity" in comment
    assert first["code"] == "InsufficientInstanceCapacity"
    assert first["at"] - submitted <= 60


def test_a_job_that_the_quota_forbids_is_held_and_runs_when_released(cluster):
    """Asking EC2 again would not help: a person has to, and is told why."""
    toolkit("local", "throttle", "RunInstances", "--code", "VcpuLimitExceeded")
    try:
        job = submit(cluster, SMOKE)
        until("EC2's answer", lambda: "VcpuLimitExceeded" in cluster.job(job)["admin_comment"])
        until("the hold", lambda: cluster.job(job)["hold"])
        assert "scontrol release" in cluster.toolkit("why", job).stdout
    finally:
        toolkit("local", "throttle", "--clear")
    cluster.run("scontrol", "release", job)
    until("the job's end", lambda: cluster.job(job)["job_state"] == ["COMPLETED"])
