"""The programs after slurmctld's kill, with its nodes' registration unsaved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmplugins.model import hostlist
from slurmplugins.slurm import agent_requests
from tests.contract.engine.simulated_cluster import SimulatedCluster, running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = hostlist.expand("gpu-[001-002]")


def place(cluster: SimulatedCluster) -> Path:
    return cluster.folder / "shared" / ".toolkit" / "stop"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimulatedCluster]:
    """A job that runs on two nodes."""
    with running_cluster(tmp_path) as one:
        place(one).mkdir(parents=True)
        one.slurm.start(7, NODES)
        one.resume()
        one.boot()
        yield one


@pytest.mark.parametrize("saved", ["POWERING_UP", "POWERED_DOWN"])
def test_after_a_kill_of_slurmctld_a_jobs_instances_live_and_their_slurmds_register_again(
    cluster: SimulatedCluster, saved: str
):
    before = {item.id for item in cluster.live()}
    cluster.slurm.killed(NODES, saved=saved)
    cluster.skip(100)
    assert cluster.reconcile() == 0
    assert {item.id for item in cluster.live()} == before
    assert all(agent_requests.read_registration_request(place(cluster), node) for node in NODES)
    assert cluster.slurm.queue[7].restarts == 0
