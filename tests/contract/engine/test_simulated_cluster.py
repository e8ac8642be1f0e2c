"""The simulated cluster without hostility, in which the programs do their work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmplugins.model import hostlist
from tests.contract.engine.simulated_cluster import Reply, SimulatedCluster, running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = hostlist.expand("gpu-[001-002]")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimulatedCluster]:
    with running_cluster(tmp_path, speed=10.0) as one:
        yield one


def test_a_job_gets_its_instances_and_they_are_terminated_after_it(cluster: SimulatedCluster):
    cluster.slurm.start(7, NODES)
    assert cluster.resume() == 0
    assert {item.node for item in cluster.live()} == set(NODES)
    cluster.boot()
    assert all("POWERING_UP" not in cluster.slurm.flags(node) for node in NODES)
    assert cluster.reconcile(2) == 0
    assert len(cluster.live()) == 2
    cluster.slurm.finish(7)
    cluster.slurm.power_down(NODES)
    cluster.slurm.tick()
    assert cluster.suspend() == 0
    assert cluster.live() == []


def test_nodes_of_a_job_that_ec2_refuses_are_given_back_with_ec2s_code(cluster: SimulatedCluster):
    cluster.ec2.lie("RunInstances", Reply.refusal("InsufficientInstanceCapacity", status=500))
    cluster.slurm.start(7, NODES)
    assert cluster.resume() == 0
    assert cluster.live() == []
    reason = cluster.slurm.state[NODES[0]].reason
    assert reason == "toolkit: no-capacity (InsufficientInstanceCapacity)"
    assert "InsufficientInstanceCapacity" in cluster.slurm.queue[7].comment


def test_an_instance_that_no_job_wants_is_terminated(cluster: SimulatedCluster):
    cluster.slurm.start(7, NODES)
    cluster.resume()
    cluster.boot()
    cluster.slurm.finish(7)
    for node in NODES:
        cluster.slurm.state[node].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    cluster.skip(600)
    cluster.reconcile(2)
    assert cluster.live() == []
