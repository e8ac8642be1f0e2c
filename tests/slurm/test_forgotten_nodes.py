"""A killed slurmctld that restores its nodes from before their registration.

slurmctld saves its nodes five seconds after a change of one, otherwise every five minutes. A test
copies an earlier file back while slurmctld is down. A kill at the worst moment leaves the same
file. The whole cluster is affected, so these tests run beside no other.
"""

from __future__ import annotations

import contextlib
import json

import pytest

from tests.slurm.conftest import toolkit
from tests.slurm.instances import node
from tests.slurm.training_job import HOME, submit
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
RECONCILE = "slurm-reconcile.timer", "slurm-reconcile.service"
UP = {"MIXED", "ALLOCATED", "CLOUD"}


def flags(cluster, job) -> set[str]:
    return set(node(cluster, job.nodes()[0])["state"])


def keep_node_state(cluster, of: str) -> None:
    """Have slurmctld save its nodes, and keep a copy of the file.

    slurmctld saves the file after a change of a node.
    """
    before = cluster.run("stat", "--format=%y", SAVED)
    cluster.run("scontrol", "update", f"nodename={of}", "comment=saved")
    until("slurmctld's save", lambda: cluster.run("stat", "--format=%y", SAVED) != before)
    cluster.run("cp", "-p", SAVED, EARLY)


@pytest.fixture
def throttled_ec2():
    """A function that ends EC2's throttle.

    Until its call, EC2 launches no instance, and the nodes stay powering up.
    """

    def clear() -> None:
        toolkit("local", "throttle", "--clear")

    toolkit("local", "throttle", "CreateFleet")
    yield clear
    clear()


@pytest.fixture
def gate(cluster, request):
    path = f"{HOME}/{request.node.name.partition('[')[0]}"
    cluster.as_user("rm", "-f", path)
    yield path
    cluster.as_user("touch", path)


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


def check_job_goes_on(cluster, job, gate: str) -> None:
    """Check that the job completes on the instance that it has."""
    name = job.nodes()[0]
    instance = node(cluster, name)["instance_id"]
    until("its step saved", lambda: "StepId" in steps(cluster, job))
    cluster.run("sleep", "6")  # slurmctld waits so long between two saves
    with no_reconcile(cluster):
        cluster.run("sh", "-c", KILL)
        until("slurmctld", lambda: "is UP" in cluster.run("sh", "-c", "scontrol ping || true"))
        assert not flags(cluster, job) <= UP, "it has forgotten nothing"
    until("the node up again", lambda: flags(cluster, job) <= UP)
    assert node(cluster, name)["instance_id"] == instance
    cluster.as_user("touch", gate)
    assert job.ended() == {"COMPLETED"}
    assert job.record()["restart_cnt"] == 0


def all_powered_down(cluster) -> bool:
    records = json.loads(cluster.run("scontrol", "show", "nodes", "--json"))["nodes"]
    farm = [item for item in records if item["name"].startswith("farm-")]
    return all("POWERED_DOWN" in item["state"] for item in farm)


def steps(cluster, job) -> str:
    return cluster.run("sh", "-c", f"scontrol show step {job.number}.0 || true")


def test_a_job_goes_on_when_slurmctld_forgets_that_its_powering_up_node_registered(
    cluster, gate, throttled_ec2
):
    job = submit_waiting_job(cluster, gate)
    until("powering up", lambda: job.nodes() and "POWERING_UP" in flags(cluster, job))
    keep_node_state(cluster, job.nodes()[0])
    assert "POWERING_UP" in flags(cluster, job)
    throttled_ec2()
    job.running()
    until("its registration", lambda: flags(cluster, job) <= UP)
    check_job_goes_on(cluster, job, gate)


def test_a_job_goes_on_when_slurmctld_forgets_that_its_node_was_powered_up(cluster, gate):
    until("a pool that sleeps", lambda: all_powered_down(cluster))
    keep_node_state(cluster, "farm-020")
    job = submit_waiting_job(cluster, gate)
    job.running()
    until("its registration", lambda: flags(cluster, job) <= UP)
    check_job_goes_on(cluster, job, gate)


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
