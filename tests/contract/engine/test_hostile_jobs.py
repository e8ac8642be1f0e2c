"""The programs with jobs that can't begin: they get no instance.

A het job begins once all its components have their nodes. A job on shared nodes begins once all
these nodes are up. A quota that our own other jobs fill becomes free without a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmplugins.model import hostlist
from tests.contract.engine.simulated_cluster import Reply, SimulatedCluster, running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.engine.simulated_cluster import Lie

G = hostlist.expand("gpu-[001-008]")
C = hostlist.expand("cpu-[1-4]")
NO_CPU = "InsufficientInstanceCapacity"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimulatedCluster]:
    with running_cluster(tmp_path) as one:
        yield one


def without_cpu(cluster: SimulatedCluster, code: str = NO_CPU) -> Lie:
    """Refuse all launches of the cpu pool's only type."""
    return cluster.ec2.lie(
        "RunInstances",
        Reply.refusal(code, status=500),
        when=lambda call: call.params["InstanceType"].startswith("m7i"),
    )


def het(cluster: SimulatedCluster) -> None:
    """Start a het job of two components, one in the cpu pool."""
    cluster.slurm.start(7, G[:2], whole=7)
    cluster.slurm.start(8, C[:1], whole=7)


def on(cluster: SimulatedCluster) -> set[str | None]:
    return {item.node for item in cluster.live()}


def minutes(cluster: SimulatedCluster, seconds: int) -> None:
    """Run the cluster for so long, with all its programs.

    Requeued jobs start again, and powered-down nodes are available again.
    """
    end = cluster.clock.now() + seconds
    while cluster.clock.now() < end:
        cluster.slurm.schedule()
        if cluster.slurm.asks():
            cluster.resume()
        cluster.skip(5)
        if cluster.slurm.suspended:
            cluster.suspend()
        cluster.reconcile()


def test_of_a_het_job_that_lacks_a_component_nothing_runs(cluster: SimulatedCluster):
    without_cpu(cluster)
    het(cluster)
    assert cluster.resume() == 0
    assert on(cluster) == set()
    assert {cluster.slurm.queue[job].state for job in (7, 8)} == {"PENDING"}
    for node in (*G[:2], *C[:1]):
        assert cluster.slurm.state[node].reason == f"toolkit: no-capacity ({NO_CPU})"
    for job in (7, 8):
        assert NO_CPU in cluster.slurm.queue[job].comment


def test_a_het_job_that_has_all_its_nodes_keeps_them(cluster: SimulatedCluster):
    het(cluster)
    assert cluster.resume() == 0
    assert on(cluster) == {*G[:2], *C[:1]}
    assert {cluster.slurm.queue[job].state for job in (7, 8)} == {"RUNNING"}


def test_a_het_job_that_can_not_begin_starts_no_instance_again_and_again(cluster: SimulatedCluster):
    without_cpu(cluster)
    het(cluster)
    minutes(cluster, 240)
    assert on(cluster) == set()
    launched = [item for item in cluster.instances() if item.node is not None]
    assert len(launched) <= 2, "the first try can't know; the others ask for the cpu node first"
    assert len(cluster.slurm.queue[7].comment) < 2000


def test_a_job_that_shares_a_node_that_can_not_be_had_keeps_no_other(cluster: SimulatedCluster):
    without_cpu(cluster)
    cluster.slurm.start(7, (G[0], C[0]))
    cluster.slurm.start(8, (C[0], G[1]))
    assert cluster.resume() == 0
    assert on(cluster) == set()
    assert NO_CPU in cluster.slurm.queue[8].comment


def test_a_job_loses_no_node_to_one_that_shares_it_and_can_not_begin(cluster: SimulatedCluster):
    without_cpu(cluster)
    cluster.slurm.start(7, (G[0], G[1]))
    cluster.slurm.start(8, (G[1], C[0], G[2]))
    assert cluster.resume() == 0
    assert on(cluster) == {G[0], G[1]}
    assert {cluster.slurm.queue[job].state for job in (7, 8)} == {"RUNNING", "PENDING"}
    assert "POWERING_UP" in cluster.slurm.flags(G[1])


def test_a_node_is_brought_for_a_job_although_the_first_that_lists_it_can_not_begin(
    cluster: SimulatedCluster,
):
    without_cpu(cluster)
    cluster.slurm.start(7, (G[0], G[1]), whole=7)
    cluster.slurm.start(8, (C[0],), whole=7)
    cluster.slurm.start(9, (G[1], G[2]))
    assert cluster.resume() == 0
    assert on(cluster) == {G[1], G[2]}
    assert [cluster.slurm.queue[job].state for job in (7, 8, 9)] == [
        "PENDING",
        "PENDING",
        "RUNNING",
    ]


QUOTA = "VcpuLimitExceeded"


def test_a_job_waits_for_a_quota_that_other_jobs_of_ours_fill(cluster: SimulatedCluster):
    cluster.slurm.start(7, G[:2])
    cluster.resume()
    cluster.boot()
    lie = cluster.ec2.lie("RunInstances", Reply.refusal(QUOTA))
    cluster.slurm.start(8, G[2:4])
    assert cluster.resume() == 0
    assert not cluster.slurm.queue[8].held
    assert cluster.slurm.state[G[2]].reason == f"toolkit: quota ({QUOTA})"
    assert QUOTA in cluster.slurm.queue[8].comment
    cluster.slurm.finish(7)
    lie.times = 0
    minutes(cluster, 60)
    assert cluster.slurm.queue[8].state == "RUNNING"
    assert on(cluster) >= set(cluster.slurm.queue[8].nodes)


def test_a_job_that_exceeds_a_quota_alone_is_held(cluster: SimulatedCluster):
    cluster.slurm.start(7, C[:1])
    cluster.resume()
    cluster.ec2.lie("RunInstances", Reply.refusal(QUOTA))
    cluster.slurm.start(8, G[2:4])
    assert cluster.resume() == 0
    assert cluster.slurm.queue[8].held


def test_jobs_that_a_quota_refuses_together_are_tried_alone(cluster: SimulatedCluster):
    cluster.ec2.lie(
        "RunInstances", Reply.refusal(QUOTA), when=lambda call: int(call.params["MaxCount"]) > 4
    )
    cluster.slurm.start(7, G[:4])
    cluster.slurm.start(8, G[4:8])
    assert cluster.resume() == 0
    assert on(cluster) == set(G)
