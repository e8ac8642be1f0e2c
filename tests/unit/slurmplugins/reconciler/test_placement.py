"""Slurm is told where a node's instance is in EC2's network, once the node is up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.errors import SlurmRefused
from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler.run import run_pass
from tests.fakes.cloud import NETWORK_NODES
from tests.fakes.engine import Bench, burst

if TYPE_CHECKING:
    from pathlib import Path

G = hostlist.expand("gpu-[001-004]")
UNPLACED = ""
"""slurmctld prints only a place that it was told."""
SHARED = f"ec2:region:{':'.join(NETWORK_NODES)}"
APART = "ec2:region:nn-zone1:nn-row1:nn-rack2"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    document = burst()
    document["pools"]["gpu"]["in_topology"] = True
    return Bench(tmp_path, pools=document["pools"])


def up(bench: Bench) -> None:
    resume(bench.engine, [bench.slurm.start(7, G[:3])])
    bench.clock.advance(10)
    bench.boot()


def places(bench: Bench) -> list[str]:
    return [bench.slurm.state[name].topology for name in G]


def test_nodes_that_are_up_get_the_place_of_their_instance(bench):
    up(bench)
    bench.cloud.network_places[bench.slurm.state[G[1]].instance_id] = (
        "nn-zone1", "nn-row1", "nn-rack2",
    )  # fmt: skip
    run_pass(bench.engine)
    assert places(bench) == [SHARED, APART, SHARED, UNPLACED]
    (event,) = bench.events("nodes_placed")
    assert (event["nodes"], event["switches"]) == (3, 2)


def test_a_node_is_placed_once(bench):
    up(bench)
    run_pass(bench.engine)
    bench.slurm.writes.clear()
    bench.cloud.calls.clear()
    run_pass(bench.engine)
    assert not [text for text in bench.slurm.writes if text.startswith("place")]
    assert "network_nodes" not in bench.cloud.calls


def test_without_a_pool_in_the_topology_nobody_is_asked(tmp_path):
    bench = Bench(tmp_path)
    up(bench)
    run_pass(bench.engine)
    assert "network_nodes" not in bench.cloud.calls
    assert not [text for text in bench.slurm.writes if text.startswith("place")]


def test_a_node_that_boots_or_goes_has_no_place(bench):
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    run_pass(bench.engine)
    assert places(bench)[:2] == [UNPLACED] * 2
    bench.clock.advance(10)
    bench.boot()
    bench.slurm.finish(7)
    bench.slurm.power_down(G[:2])
    run_pass(bench.engine)
    assert places(bench)[:2] == [UNPLACED] * 2


def test_an_instance_that_ec2_tells_no_place_of_leaves_its_node_where_it_is(bench):
    up(bench)
    bench.cloud.network_places[bench.slurm.state[G[0]].instance_id] = ()
    run_pass(bench.engine)
    assert places(bench)[:3] == [UNPLACED, SHARED, SHARED]


def test_the_next_instance_of_a_node_is_placed_anew(bench):
    up(bench)
    run_pass(bench.engine)
    bench.slurm.finish(7)
    bench.slurm.power_down(G[:3])
    bench.slurm.tick()
    suspend(bench.engine, G[:3], EndCause.SUSPEND)
    bench.clock.advance(90)
    bench.slurm.tick()
    assert places(bench)[:3] == [UNPLACED] * 3
    up(bench)
    run_pass(bench.engine)
    assert places(bench)[:3] == [SHARED] * 3


def test_an_ec2_that_tells_no_places_costs_a_pass_nothing_else(bench, monkeypatch):
    up(bench)

    def refuse(types):
        raise error_codes.error("UnauthorizedOperation", "not this call")

    monkeypatch.setattr(bench.cloud, "network_nodes", refuse)
    run_pass(bench.engine)
    (event,) = bench.events("nodes_not_placed")
    assert "not this call" in str(event["message"])
    assert places(bench)[:3] == [UNPLACED] * 3


def test_a_place_that_slurmctld_refuses_keeps_no_other_node_from_its_place(bench, monkeypatch):
    up(bench)
    first = bench.slurm.state[G[0]].instance_id
    bench.cloud.network_places[first] = ("nn-zone1", "nn-row1", "nn-rack2")
    accept = bench.slurm.place

    def place(nodes, topology):
        if topology == APART:
            raise SlurmRefused("Invalid topology")
        accept(nodes, topology)

    monkeypatch.setattr(bench.slurm, "place", place)
    run_pass(bench.engine)
    assert places(bench)[:3] == [UNPLACED, SHARED, SHARED]
    (refused,) = bench.events("nodes_not_placed")
    assert "Invalid topology" in str(refused["message"])
    (event,) = bench.events("nodes_placed")
    assert (event["nodes"], event["switches"]) == (2, 1)
