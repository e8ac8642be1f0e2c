"""Laws on a node's place in EC2's network."""

import pytest

from slurmplugins.model.topology import is_placed, unit


def test_a_place_names_the_switches_from_the_top_down():
    assert unit(("nn-1a", "nn-2b", "nn-3c")) == "ec2:region:nn-1a:nn-2b:nn-3c"
    assert unit(("nn-1a", "nn-2b", "nn-3c", "nn-4d")).endswith(":nn-4d")


@pytest.mark.parametrize(
    "names", [(), ("rack1",), ("nn-1,nn-2",), ("nn-1 state=down",), ("nn-1", "nn-1"), ("nn-1",) * 9]
)
def test_network_nodes_that_ec2_would_not_write_give_no_place(names):
    assert unit(names) == ""


def test_only_a_place_of_our_own_topology_is_one():
    assert is_placed("ec2:region:nn-1a")
    for text in ("", "flat", "racks:nn-1a", "ec2-racks:nn-1a"):
        assert not is_placed(text)
