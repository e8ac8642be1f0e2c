"""The shape of an instance is that of its type, whatever its node is today."""

from tests.unit.accounting.samples import an_instance
from toolkit.accounting.node_shapes import shapes
from toolkit.prices import Catalogue, Shape
from toolkit.slurm_nodes import NodeInfo

CATALOGUE = Catalogue.bundled()


def a_node(**changes):
    values = {
        "name": "gpu-001",
        "states": frozenset({"IDLE"}),
        "cpus": 32,
        "memory_mib": 128_000,
        "gpus": 8,
        "partitions": ("spot",),
        "instance_id": "i-9",
        "instance_type": "g5.48xlarge",
        "address": "",
        "reason": "",
    }
    return NodeInfo(**(values | changes))


def test_an_old_instance_keeps_its_shape_when_its_node_grows():
    assert shapes([an_instance()], [a_node()], CATALOGUE) == {"i-1": CATALOGUE.shapes["g5.xlarge"]}


def test_slurms_figures_are_used_for_a_type_that_the_catalogue_lacks():
    instance = an_instance(instance_type="x9.huge")
    assert shapes([instance], [a_node(instance_type="x9.huge")], CATALOGUE) == {
        "i-1": Shape(32, 128_000, 8)
    }


def test_an_instance_of_unknown_type_has_no_shape_of_another_type():
    instance = an_instance(instance_type="x9.huge")
    assert shapes([instance], [a_node()], CATALOGUE) == {}
