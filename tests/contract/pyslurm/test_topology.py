"""A live slurmctld of Slurm 25.11 gives jobs nodes that are close, and launches none for that."""

import json

import pytest

from tests.contract.pyslurm import tree
from tests.unit.render.render_samples import CPU_POOL, GPU_POOL, PRICES, a_config
from toolkit import assets
from toolkit.render.context import slurm_context
from toolkit.render.slurm import slurm_files

pytestmark = pytest.mark.timeout(900)


def rendered_topology():
    pools = {"c": {**GPU_POOL, "count": 12, "placement_group": True}, "cpu": CPU_POOL}
    partitions = {"main": {"pools": ["c"]}, "any": {"pools": ["cpu"], "default": True}}
    config = a_config(slurm={"version": "25.11"}, pools=pools, partitions=partitions)
    files = slurm_files(slurm_context(config, PRICES), assets.directory("templates"))
    return files["topology.yaml"].replace("c-[001-012]", "c-[01-12]")


def test_live_jobs_get_nodes_below_one_switch_and_nodes_that_are_up_first():
    answer = json.loads(tree.live_cluster(rendered_topology(), program="placed_nodes"))
    assert answer["first"] == "c-[01-04]"
    assert answer["switches"] == {
        "region": "c-[01-12]",
        "unplaced": "c-[05-12]",
        "nn-row1": "c-[01-03]",
        "nn-rack1": "c-[01,03]",
        "nn-rack2": "c-02",
        "nn-row2": "c-04",
        "nn-rack3": "c-04",
    }
    assert answer["jobs"] == {
        "2": "c-[01,03]", "3": "c-[01-03]", "4": "c-[01-04]", "5": "c-[01-05]",
    }  # fmt: skip
    assert answer["resumed"] == [f"c-0{number}" for number in range(1, 6)]
    assert answer["topology of c-01"] == ""


def test_live_jobs_without_a_tree_get_nodes_by_their_number():
    answer = json.loads(tree.live_cluster("", program="placed_nodes"))
    assert answer["jobs"]["2"] == "c-[01-02]"
    assert answer["topology of c-01"] == ""
