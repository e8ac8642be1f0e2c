"""The shapes of instances and of racks' nodes. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit.prices import Shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from toolkit.accounting.instances import Instance
    from toolkit.accounting.racks import RackNode
    from toolkit.prices import Catalogue
    from toolkit.slurm_nodes import NodeInfo


def shapes(
    instances: Iterable[Instance], nodes: Iterable[NodeInfo], catalogue: Catalogue
) -> Mapping[str, Shape]:
    """Return each instance's shape, by instance id.

    It is the size of its type, which never changes, unlike its node's shape. Slurm's
    figures serve for a type that the catalogue lacks. They must be of a node that has an
    instance of that type today.
    """
    node_by_name = {node.name: node for node in nodes}
    shapes_by_id = {}
    for instance in instances:
        shape = catalogue.shapes.get(instance.instance_type)
        node = node_by_name.get(instance.node)
        if shape is None and node is not None and node.instance_type == instance.instance_type:
            shape = Shape(node.cpus, node.memory_mib, node.gpus)
        if shape is not None:
            shapes_by_id[instance.instance_id] = shape
    return shapes_by_id


def with_shapes(racks: Mapping[str, RackNode], nodes: Iterable[NodeInfo]) -> dict[str, RackNode]:
    """Return the racks' nodes, each with a shape.

    A node without one in cluster.yaml has Slurm's figures of today.
    """
    node_by_name = {node.name: node for node in nodes}
    return {
        name: replace(rack, shape=rack.shape or _shape(node_by_name.get(name)))
        for name, rack in racks.items()
    }


def _shape(node: NodeInfo | None) -> Shape | None:
    return None if node is None else Shape(node.cpus, node.memory_mib, node.gpus)
