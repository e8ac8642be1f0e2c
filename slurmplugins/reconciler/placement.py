"""Tells Slurm where the nodes' instances are in EC2's network, once they run.

Slurm's topology/tree then gives a job nodes that are close to each other (docs/adr/0050). A node
that powers down loses its place by itself: slurmctld gives it that of topology.yaml again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.errors import CloudError, SlurmError, SlurmRefused
from slurmplugins.model import topology
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.node import Node
    from slurmplugins.reconciler.snapshot import Snapshot


def place_nodes(engine: Engine, snapshot: Snapshot) -> None:
    """Tell Slurm the places of nodes that are up. Raises nothing.

    A node is told once. Without such a node, neither EC2 nor Slurm is called. A place only saves a
    job time, so a failure is logged, and the next pass tries again. A place that slurmctld refuses
    keeps no other nodes from theirs.
    """
    instances = unplaced_instances(snapshot)
    if not instances:
        return
    try:
        types = sorted({instance.type for instance in instances.values()})
        nodes_by_unit = group_by_unit(instances, engine.cloud.network_nodes(types))
        placed = {
            unit: nodes for unit, nodes in nodes_by_unit.items() if _place(engine, unit, nodes)
        }
    except (CloudError, SlurmError) as error:
        engine.log.warning(LogEvent.NODES_NOT_PLACED, message=error.message)
        return
    if placed:
        count = sum(map(len, placed.values()))
        engine.log.info(LogEvent.NODES_PLACED, nodes=count, switches=len(placed))


def _place(engine: Engine, unit: str, nodes: Sequence[NodeName]) -> bool:
    """Return whether slurmctld took it. Raises SlurmError where slurmctld does not answer."""
    try:
        engine.slurm.place(nodes, unit)
    except SlurmRefused as error:
        engine.log.warning(LogEvent.NODES_NOT_PLACED, message=error.message)
        return False
    return True


def unplaced_instances(snapshot: Snapshot) -> dict[NodeName, Instance]:
    """Return the instances of nodes that are up without a place."""
    return {
        instance.node: instance
        for instance in snapshot.instances
        if instance.node is not None
        and not instance.state.terminated
        and (pool := snapshot.config.pool_of(instance.node)) is not None
        and pool.in_topology
        and _lacks_place(snapshot.nodes.get(instance.node), instance)
    }


def _lacks_place(node: Node | None, instance: Instance) -> bool:
    return (
        node is not None
        and node.instance_id == instance.id
        and node.up
        and not node.power_down_requested
        and not topology.is_placed(node.topology)
    )


def group_by_unit(
    instances: Mapping[NodeName, Instance], network_nodes: Mapping[str, Sequence[str]]
) -> dict[str, list[NodeName]]:
    """Return the nodes by the value of `Topology=`.

    Nodes whose place EC2 did not tell are left out.
    """
    nodes_by_unit: dict[str, list[NodeName]] = {}
    for node, instance in sorted(instances.items()):
        if unit := topology.unit(network_nodes.get(instance.id, ())):
            nodes_by_unit.setdefault(unit, []).append(node)
    return nodes_by_unit
