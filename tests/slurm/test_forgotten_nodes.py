"""A killed slurmctld that restores its nodes from before their registration.

slurmctld saves its nodes five seconds after a change of one, otherwise every five minutes. A test
copies an earlier file back while slurmctld is down. A kill at the worst moment leaves the same
file. The whole cluster is affected, so these tests run beside no other.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.instances import node
from tests.slurm.training_job import HOME, TrainingJob, submit
from tests.slurm.waiting import until

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
SAVED = "/srv/head/slurmctld/node_state"
EARLY = "/srv/head/slurmctld/node_state.early"
# The job works until the gate's file exists. slurmctld saves the job when its step starts.
WORK = "--wrap=srun bash -c 'until [[ -e {gate} ]]; do sleep 1; done'"
# systemctl stop as well: otherwise systemd would start slurmctld while the files are copied.
KILL = f"""
pkill -9 -x slurmctld
systemctl stop slurmctld
cp -p {EARLY} {SAVED}
cp -p {EARLY} {SAVED}.old
systemctl start --no-block slurmctld
"""
GATE = f"{HOME}/gate-of-forgotten-nodes"
RECONCILE = "slurm-reconcile.timer", "slurm-reconcile.service"
UP = {"MIXED", "ALLOCATED", "CLOUD"}


def flags(cluster, job) -> set[str]:
    return set(node(cluster, job.nodes()[0])["state"])


def instance_of(cluster, job) -> str:
    return node(cluster, job.nodes()[0])["instance_id"]


def keep_node_state(cluster, of: str) -> None:
    """Have slurmctld save its nodes, and keep a copy of the file.

    slurmctld saves the file after a change of a node.
    """
    before = cluster.run("stat", "--format=%y", SAVED)
    cluster.run("scontrol", "update", f"nodename={of}", "comment=saved")
    until("slurmctld's save", lambda: cluster.run("stat", "--format=%y", SAVED) != before)
    cluster.run("cp", "-p", SAVED, EARLY)


@contextlib.contextmanager
def throttled_ec2():
    """Let EC2 launch nothing inside the block: nodes stay powering up."""
    toolkit("local", "throttle", "CreateFleet")
    try:
        yield
    finally:
        toolkit("local", "throttle", "--clear")


def submit_waiting_job(cluster, gate: str):
    command_option = WORK.format(gate=gate)
    return submit(
        cluster, "--partition=batch", "--nodes=1", "--exclusive", "--requeue", command_option
    )


@contextlib.contextmanager
def no_reconcile(cluster):
    """Stop reconcile inside the block, so that it repairs no node.

    A pass that runs already ends first.
    """
    timer, service = RECONCILE
    cluster.run("systemctl", "stop", timer)
    try:
        until(
            "reconcile's end",
            lambda: (
                cluster.run("sh", "-c", f"systemctl is-active {service} || true").strip()
                in {"inactive", "failed"}
            ),
        )
        yield
    finally:
        cluster.run("systemctl", "start", timer)


def all_powered_down(cluster) -> bool:
    records = json.loads(cluster.run("scontrol", "show", "nodes", "--json"))["nodes"]
    farm = [item for item in records if item["name"].startswith("farm-")]
    return all("POWERED_DOWN" in item["state"] for item in farm)


def steps(cluster, job) -> str:
    return cluster.run("sh", "-c", f"scontrol show step {job.number}.0 || true")


def kill_slurmctld(cluster, jobs) -> None:
    """Kill slurmctld when it has saved the jobs' steps.

    It comes back with the nodes that were kept before.
    """
    for job in jobs:
        until("its step saved", lambda job=job: "StepId" in steps(cluster, job))
    cluster.run("sleep", "6")  # slurmctld waits so long between two saves
    with no_reconcile(cluster):
        cluster.run("sh", "-c", KILL)
        until("slurmctld", lambda: "is UP" in cluster.run("sh", "-c", "scontrol ping || true"))
        for job in jobs:
            assert not flags(cluster, job) <= UP, "it has forgotten nothing"


@dataclass(frozen=True)
class Forgotten:
    """A job whose node slurmctld forgot, and the node's instance before and after."""

    job: TrainingJob
    instance: str
    instance_after: str


@pytest.fixture(scope="module")
def forgotten(cluster):
    """Jobs by what slurmctld forgot of their nodes, in one kill.

    When the nodes are kept, the first job's node is powering up, and the second's sleeps.
    """
    cluster.as_user("rm", "-f", GATE)
    until("a pool that sleeps", lambda: all_powered_down(cluster))
    with throttled_ec2():
        first = submit_waiting_job(cluster, GATE)
        until("powering up", lambda: first.nodes() and "POWERING_UP" in flags(cluster, first))
        keep_node_state(cluster, first.nodes()[0])
        assert "POWERING_UP" in flags(cluster, first)
        second = submit_waiting_job(cluster, GATE)
    jobs = {"its registration": first, "its power-up": second}
    for job in jobs.values():
        job.running()
        until("its registration", lambda job=job: flags(cluster, job) <= UP)
    before = {name: instance_of(cluster, job) for name, job in jobs.items()}
    kill_slurmctld(cluster, jobs.values())
    for job in jobs.values():
        until("the node up again", lambda job=job: flags(cluster, job) <= UP)
    yield {
        name: Forgotten(job, before[name], instance_of(cluster, job)) for name, job in jobs.items()
    }
    cluster.as_user("touch", GATE)


@pytest.mark.parametrize("fact", ["its registration", "its power-up"])
def test_a_job_goes_on_when_slurmctld_forgets_of_its_node(cluster, forgotten, fact):
    """Check that the job completes on the instance that it has."""
    job = forgotten[fact].job
    assert forgotten[fact].instance_after == forgotten[fact].instance
    cluster.as_user("touch", GATE)
    assert job.ended() == {"COMPLETED"}
    assert job.record()["restart_cnt"] == 0


def test_a_job_is_not_unknown_while_slurmctld_is_away(cluster):
    job = submit(cluster, "--partition=batch", "--hold", "--wrap=true")
    with no_reconcile(cluster):
        cluster.run("systemctl", "stop", "slurmctld")
        try:
            answer = cluster.toolkit("why", job.number, "--json", may_fail=True)
        finally:
            cluster.run("systemctl", "start", "slurmctld")
    assert "slurm-unreachable: " in answer.stdout, answer.stderr
    until("slurmctld", lambda: "is UP" in cluster.run("sh", "-c", "scontrol ping || true"))
    cluster.run("scancel", job.number)
