"""A real cluster that is deployed, trained on and billed.

The tests run in this order.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
from decimal import Decimal

import pytest

from tests.slurm.conftest import TOOLKIT
from tests.slurm.instances import LIVE, instances_of_pool
from tests.slurm.waiting import PATIENCE, until
from toolkit.errors import HeadCommandFailed

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
SMOKE = "/shared/jobscripts/smoke.sbatch"
log = logging.getLogger(__name__)
PLAYBOOK = ["ansible-playbook", "-i", "inventory.yml", "-e", "@../rendered/vars.json"]


def play(cluster, book, *options):
    return cluster.run(
        "env",
        "-C",
        "/opt/slurm-toolkit/bundle/ansible",
        "PYTHONPATH=python",
        *PLAYBOOK,
        book,
        *options,
        timeout=PATIENCE,
    )


def test_status_calls_the_cluster_healthy(cluster):
    """Wait until `toolkit status` succeeds.

    The other lane restarts slurmctld and interrupts instances meanwhile.
    """
    argv = [str(TOOLKIT), "status", "--json", "--config", str(cluster.config)]

    def healthy() -> bool:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE)
        log.warning("%s%s", done.stdout, done.stderr)  # for a failed test
        return done.returncode == 0 and json.loads(done.stdout)["healthy"]

    until("a healthy cluster", healthy)


def test_second_playbook_run_changes_nothing(cluster):
    with cluster.undisturbed("services"):
        recap = play(cluster, "site.yml")
    assert re.search(r"changed=0\s+unreachable=0\s+failed=0", recap), recap[-2000:]


def test_the_cluster_passes_the_verify_playbook(cluster):
    with cluster.undisturbed("services"):
        assert "failed=0" in play(cluster, "verify.yml")


def test_the_verify_playbook_fails_if_a_timer_is_stopped(cluster):
    with cluster.undisturbed("services"):
        cluster.run("systemctl", "stop", "slurm-budget.timer")
        try:
            with pytest.raises(HeadCommandFailed) as failed:
                play(cluster, "verify.yml", "-e", "verify_retries=1")
        finally:
            cluster.run("systemctl", "start", "slurm-budget.timer")
    last_task = failed.value.stdout.rpartition("TASK [")[2]
    assert last_task.startswith("Ask systemd about the services]")


def test_sbatch_refuses_an_impossible_request_with_a_reason(cluster):
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
def demo(cluster):
    """The cluster's demo, shared by the tests of this module."""
    return cluster.demo()


@pytest.fixture(scope="module")
def interrupted_instances():
    """The instances that EC2 takes from the demo's job."""
    return []


def test_training_survives_a_spot_interruption_and_the_pool_scales_to_zero(
    cluster, demo, interrupted_instances
):
    demo.submit()
    interruption = demo.train_until_interrupted()
    interrupted_instances.append(interruption.instance_id)
    demo.check_requeue(interruption)
    demo.finish()
    demo.audit()
    until("no instance of the pool", lambda: not instances_of_pool(cluster, "gpu", *LIVE))


def test_the_last_lines_of_the_interrupted_node_are_in_cloudwatch(cluster, interrupted_instances):
    """Read them of an instance that is gone, by its id."""

    def lines_after_notice() -> list[dict]:
        printed = cluster.toolkit("logs", instance_id, "--json").stdout.splitlines()
        lines = [json.loads(line) for line in printed]
        notices = [line["at"] for line in lines if "interruption_announced" in line["text"]]
        units = {line["unit"] for line in lines if notices and line["at"] > notices[0]}
        return lines if "slurmd" in units else []

    (instance_id,) = interrupted_instances
    lines = until("slurmd's lines of the interrupted instance", lines_after_notice)
    log.warning("the last of %d lines: %s", len(lines), lines[-1])
    assert len({line["node"] for line in lines}) == 1
    assert {"slurm-node-boot", "slurm-node-agent", "user-data"} <= {line["unit"] for line in lines}


def test_all_attempts_are_one_mlflow_run(cluster, demo):
    runs = json.loads(cluster.toolkit("runs", "list", "--json").stdout)
    (run,) = [run for run in runs if run["tags"].get("toolkit.job_id") == demo.job_id]
    assert run["status"] == "FINISHED"
    assert int(run["tags"]["toolkit.attempts"]) >= 2
    assert Decimal(run["tags"]["toolkit.cost_usd_estimate"]) > 0
    assert "loss" in run["metrics"]


def test_report_sums_to_the_instances_exactly(cluster):
    report = json.loads(cluster.toolkit("report", "--json").stdout)
    charges = sum((Decimal(charge["usd"]) for charge in report["charges"]), Decimal(0))
    instance_totals = sum((Decimal(item["total"]) for item in report["instances"]), Decimal(0))
    assert charges == instance_totals == Decimal(report["total"])
    assert {"ada"} <= {charge["user"] for charge in report["charges"]}
