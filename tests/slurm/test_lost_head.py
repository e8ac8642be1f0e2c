"""A head node whose instance is terminated from outside, and its successor.

The whole cluster is affected, so this test runs beside no other.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from tests.slurm.conftest import DEPLOY_SECONDS, Cluster, cluster_of, toolkit
from tests.slurm.instances import LIVE, driver_and_machine, instances_of_pool, node
from tests.slurm.settings import edit, remove_zoe
from tests.slurm.ssh import REFUSED, computer
from tests.slurm.training_job import HOME, TrainingJob, slow, submit
from tests.slurm.waiting import until
from toolkit.config import load
from toolkit.deploy.session import Clients

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
GATE = f"{HOME}/gate-of-lost-head"
STEPS_WITHOUT_HEAD = 5
QUICK = ("--output=/dev/null", "--wrap=true")


@dataclass(frozen=True)
class Loss:
    """The cluster with its new head node, its jobs, and what was true before."""

    cluster: Cluster
    old_head: str
    training: TrainingJob
    finished: TrainingJob
    waiting: TrainingJob
    held: TrainingJob
    node: str
    instance: str  # of the node
    steps: int  # of the training when the head node ended
    steps_without_head: int
    mlflow_run: str
    host_key: str


def steps_on_node(driver, machine: str, job: TrainingJob) -> int:
    """Count a training's steps on its node, without the head node."""
    path = f"{HOME}/runs/{job.number}/steps.jsonl"
    return len(driver.execute(machine, ["cat", path], timeout=30).stdout.splitlines())


def host_key(cluster: Cluster) -> str:
    return cluster.run("cat", "/srv/head/ssh/host_ed25519_key.pub")


@pytest.fixture(scope="module")
def loss(cluster, request) -> Loss:
    """Terminate the head while jobs run, wait and are held.

    The deploy that replaces it also lets a user leave: an apply for that alone takes a minute.
    """
    cluster = cluster_of(cluster.config)
    training, finished = slow(cluster, "--nodes=1", gate=GATE), submit(cluster, *QUICK)
    waiting = submit(cluster, f"--dependency=afterany:{training.number}", *QUICK)
    held = submit(cluster, "--hold", *QUICK)
    assert finished.ended() == {"COMPLETED"}
    training.trained(STEPS_WITHOUT_HEAD)
    run = until("the MLflow run", training.run)
    (name,) = training.nodes()
    driver, machine = driver_and_machine(cluster, name)
    key = host_key(cluster)

    ec2 = Clients(load(cluster.config)).client("ec2")
    old_head = cluster.head.instance_id
    ec2.terminate_instances(InstanceIds=[old_head])
    terminated = {"InstanceIds": [old_head], "WaiterConfig": {"Delay": 1}}
    ec2.get_waiter("instance_terminated").wait(**terminated)
    began, steps = time.monotonic(), steps_on_node(driver, machine, training)
    until(
        "steps without a head node",
        lambda: steps_on_node(driver, machine, training) > steps + STEPS_WITHOUT_HEAD,
    )
    steps_without_head = steps_on_node(driver, machine, training)
    edit(cluster.config, remove_zoe)
    toolkit("deploy", "--config", str(cluster.config), timeout=DEPLOY_SECONDS)
    minutes = (time.monotonic() - began) / 60
    terminal = request.config.pluginmanager.getplugin("terminalreporter")
    terminal.write_line(f"\nthe head node was replaced in {minutes:.1f} minutes")
    new = cluster_of(cluster.config)
    jobs = {
        "training": TrainingJob(new, training.number),
        "finished": TrainingJob(new, finished.number),
        "waiting": TrainingJob(new, waiting.number),
        "held": TrainingJob(new, held.number),
    }
    return Loss(
        cluster=new,
        old_head=old_head,
        **jobs,
        node=name,
        instance=machine,
        steps=steps,
        steps_without_head=steps_without_head,
        mlflow_run=run["run_id"],
        host_key=key,
    )


def test_a_running_job_runs_on_without_a_restart_on_its_node(loss):
    """Train while no head node is there, and after it is."""
    assert loss.cluster.head.instance_id != loss.old_head
    assert loss.steps_without_head > loss.steps
    assert loss.training.running() == {"RUNNING"}
    record = loss.training.record()
    assert (record["restart_cnt"], loss.training.nodes()) == (0, [loss.node])
    assert node(loss.cluster, loss.node)["instance_id"] == loss.instance
    assert loss.instance in {i["InstanceId"] for i in instances_of_pool(loss.cluster, "gpu", *LIVE)}
    assert loss.training.trained(loss.steps_without_head + 1)
    assert len(loss.training.attempts()) == 1


def test_waiting_and_held_jobs_are_still_there(loss):
    assert loss.waiting.record()["state_reason"] == "Dependency"
    assert loss.held.record()["state_reason"] == "JobHeldUser"


def test_accounting_and_mlflow_know_what_was_before(loss):
    assert loss.finished.states() == {"COMPLETED"}
    argv = ("sacct", "--allocations", "--noheader", "--parsable2", "--format=JobID,State,User")
    rows = loss.cluster.run(*argv, f"--jobs={loss.finished.number},{loss.training.number}")
    assert f"{loss.finished.number}|COMPLETED|ada" in rows
    assert f"{loss.training.number}|RUNNING|ada" in rows
    run = until("MLflow", loss.training.run)
    assert (run["run_id"], run["status"]) == (loss.mlflow_run, "RUNNING")


def test_users_meet_the_same_host_key(loss):
    assert host_key(loss.cluster) == loss.host_key


def test_who_left_meanwhile_has_no_access_on_the_login_node(loss, state, tmp_path):
    """Look on the login node of test_login_nodes.py, which follows the new head."""
    ssh, key = computer(loss.cluster.config, tmp_path), state / "zoe"
    until("no access", lambda: REFUSED in ssh.run("id", user="zoe", key=key).stderr, 60)
    assert ssh.run("id", "-un", key=state / "ada").stdout == "ada\n"
    passwd = loss.cluster.toolkit("login", "getent", "passwd", "zoe").stdout.strip()
    assert passwd.split(":")[2::4] == ["2077", "/usr/sbin/nologin"]


def test_the_jobs_end_as_if_nothing_had_happened(loss):
    """End the training; the waiting and the held job follow."""
    loss.cluster.as_user("touch", GATE)
    loss.cluster.as_user("scontrol", "release", loss.held.number)
    assert loss.training.ended() == {"COMPLETED"}, loss.training.output()
    assert loss.training.causes() == ["finished"]
    assert loss.waiting.ended() == {"COMPLETED"}
    assert loss.held.ended() == {"COMPLETED"}
    assert loss.training.record()["restart_cnt"] == 0
