"""The programs with an EC2 that terminates nothing, or starts too little.

The number of launches stays bounded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.model import hostlist
from tests.contract.engine.simulated_cluster import Reply, SimulatedCluster, running_cluster
from toolkit.local.instance_events import InstanceEvents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurmplugins.model.hostlist import NodeName
    from toolkit.local.endpoint import Call

NODES = hostlist.expand("gpu-[001-002]")
CPU = hostlist.expand("cpu-1")
REFUSALS = {
    "UnauthorizedOperation": Reply.refusal("UnauthorizedOperation", status=403),
    "RequestLimitExceeded": Reply.refusal("RequestLimitExceeded", status=503),
    "InternalError": Reply.refusal("InternalError", status=500),
}
NONE_LEFT = Reply.refusal("InsufficientInstanceCapacity", status=500)


ROUNDS = 8


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimulatedCluster]:
    with running_cluster(tmp_path, speed=2.0) as one:
        yield one


def goes_on(cluster: SimulatedCluster, seconds: float) -> None:
    """Advance the time, and run the programs that are due then.

    slurmctld or the timer starts them.
    """
    cluster.skip(seconds)
    failed = hostlist.compress(cluster.slurm.resume_failed)
    cluster.slurm.resume_failed.clear()
    if failed:
        cluster.run("resume_fail", failed)
    if cluster.slurm.suspended:
        cluster.suspend()
    cluster.reconcile()


def free(cluster: SimulatedCluster, nodes: tuple[NodeName, ...]) -> bool:
    """Return whether slurmctld may start a job on these nodes."""
    return all(cluster.slurm.flags(node) >= {"IDLE", "POWERED_DOWN"} for node in nodes)


def again(cluster: SimulatedCluster, job: int, nodes: tuple[NodeName, ...]) -> None:
    """Start the job on these nodes, if slurmctld may."""
    state = cluster.slurm.queue[job]
    if state.state == "PENDING" and not state.held and free(cluster, nodes):
        cluster.slurm.start(job, nodes)
        cluster.resume()


def of_cpu(call: Call) -> bool:
    """Return whether the call is for instances of the pool cpu."""
    return "demo-cpu" in call.params.values()


def started(cluster: SimulatedCluster) -> int:
    return len(cluster.instances())


@pytest.mark.parametrize("code", REFUSALS)
def test_a_requeued_job_gets_few_instances_while_none_can_be_terminated(
    cluster: SimulatedCluster, code: str
):
    """Start each attempt on other nodes.

    So no surviving instance of the earlier attempts stands in the way.
    """
    cluster.ec2.lie("TerminateInstances", REFUSALS[code])
    cluster.ec2.lie("RunInstances", NONE_LEFT, when=of_cpu)
    cluster.slurm.start(7, (*NODES, *CPU))
    cluster.resume()
    for first in (3, 5, 7):
        goes_on(cluster, 121)
        again(cluster, 7, (*hostlist.expand(f"gpu-[{first:03}-{first + 1:03}]"), *CPU))
    assert started(cluster) <= 2 * len(NODES)
    assert cluster.slurm.state[CPU[0]].reason == f"toolkit: not-ended ({code})"
    assert not cluster.slurm.queue[7].held


def test_a_node_whose_instance_can_not_be_terminated_gets_no_second_one(cluster: SimulatedCluster):
    """Start the job again on a node that slurmctld takes for free.

    slurmctld has forgotten the failed termination.
    """
    cluster.ec2.lie("TerminateInstances", REFUSALS["UnauthorizedOperation"])
    cluster.slurm.start(7, NODES)
    cluster.resume()
    cluster.slurm.down(NODES, "cancelled")
    cluster.slurm.power_down(NODES)
    cluster.slurm.tick()
    cluster.suspend()
    cluster.slurm.resume(NODES)
    again(cluster, 7, NODES)
    assert started(cluster) == len(NODES)
    reason = cluster.slurm.state[NODES[0]].reason
    assert reason == "toolkit: not-ended (UnauthorizedOperation)"
    assert not cluster.slurm.queue[7].held
    cluster.ec2.honest()
    for _ in range(2):
        goes_on(cluster, 61)
    again(cluster, 7, NODES)
    assert {item.node for item in cluster.live()} == set(NODES)


def test_no_launch_is_made_while_no_instance_can_be_terminated(
    cluster: SimulatedCluster,
):
    cluster.ec2.lie("TerminateInstances", REFUSALS["UnauthorizedOperation"])
    cluster.slurm.start(7, NODES)
    cluster.resume()
    for _ in range(3):
        goes_on(cluster, 200)
    cluster.slurm.start(8, CPU)
    cluster.resume()
    assert started(cluster) == len(NODES)
    assert cluster.slurm.state[CPU[0]].reason == "toolkit: not-ended (UnauthorizedOperation)"
    assert "EC2 has terminated nothing for" in cluster.slurm.queue[8].comment
    assert not cluster.slurm.queue[8].held
    cluster.ec2.honest()
    for _ in range(2):
        goes_on(cluster, 61)
    again(cluster, 8, CPU)
    assert [item.node for item in cluster.live()] == list(CPU)


def test_a_job_that_ec2_begins_to_serve_again_and_again_is_held(cluster: SimulatedCluster):
    """Start a job on two pools, of which one has no capacity.

    Each attempt launches some instances and terminates them.
    """
    cluster.ec2.lie("RunInstances", NONE_LEFT, when=of_cpu)
    cluster.slurm.start(7, (*NODES, *CPU))
    cluster.resume()
    for _ in range(6):
        goes_on(cluster, 121)
        again(cluster, 7, (*NODES, *CPU))
    assert 0 < started(cluster) <= 3 * 3
    assert cluster.live() == []
    job = cluster.slurm.queue[7]
    assert job.held
    assert "toolkit: launch-loop held, release it after fixing this" in job.comment
    cluster.ec2.honest()
    cluster.slurm.release(7)
    goes_on(cluster, 121)
    again(cluster, 7, (*NODES, *CPU))
    assert {item.node for item in cluster.live()} == {*NODES, *CPU}


def test_a_running_job_whose_spot_instances_are_taken_for_days_is_never_held(
    cluster: SimulatedCluster,
):
    cluster.slurm.start(7, NODES)
    cluster.resume()
    for _ in range(4):
        cluster.boot()
        cluster.reconcile()
        for item in cluster.live():
            InstanceEvents(cluster.local.cloud.tables).interrupt(item.id, 0.0)
        goes_on(cluster, 3600)
        for _ in range(ROUNDS):  # on a busy test host a snapshot may be too old to act on
            goes_on(cluster, 3600)
            if free(cluster, NODES):
                break
        again(cluster, 7, NODES)
    assert not cluster.slurm.queue[7].held
    assert len(cluster.live()) == len(NODES)


def test_a_job_above_the_rate_that_cluster_yaml_tells_is_held_before_anything_is_started(
    cluster: SimulatedCluster,
):
    cluster.configure(instance_rate={"burst": 1, "per_second": 0.01})
    cluster.slurm.start(7, NODES)
    cluster.resume()
    assert cluster.ec2.count("RunInstances") == 0
    assert cluster.slurm.queue[7].held
    comment = cluster.slurm.queue[7].comment
    assert "toolkit: rate-too-low held" in comment
    assert "aws.instance_rate (burst 1, per_second 0.01)" in comment


def test_a_job_above_the_rate_that_is_assumed_is_tried_once_and_held(tmp_path: Path):
    """Ask for more instances than the assumed rate allows.

    The account might have a higher rate, so EC2 is tried, but only once for the same job.
    """
    throttled = Reply.refusal("RequestLimitExceeded", status=503)
    # At real speed, since the search must reach EC2 in time.
    with running_cluster(tmp_path) as cluster:
        cluster.configure(**wide(cluster, count=1050, resume_timeout=40))
        cluster.ec2.lie(
            "RunInstances", throttled, when=lambda _: cluster.ec2.count("RunInstances") > 1
        )
        nodes = hostlist.expand("gpu-[1-1050]")
        cluster.slurm.start(7, nodes)
        cluster.resume()
        assert 0 < started(cluster) < len(nodes)
        assert cluster.live() == []
        assert cluster.slurm.queue[7].held
        assert f"EC2 started {started(cluster)} of 1050 instances" in cluster.slurm.queue[7].comment


def wide(cluster: SimulatedCluster, *, count: int, resume_timeout: float) -> dict[str, Any]:
    """Return settings with so many nodes in the pool gpu."""
    settings = json.loads((cluster.folder / "burst.json").read_text())
    settings["pools"]["gpu"]["nodes"] = f"gpu-[1-{count}]"
    settings["slurm"]["resume_timeout"] = resume_timeout
    return settings
