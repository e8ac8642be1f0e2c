"""Collect each node with its instances, as reconcile judges them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.model.instance import InstanceState, instances_by_node
from slurmplugins.reconciler import orphans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.node import Node
    from slurmplugins.reconciler.snapshot import Snapshot


RESUME_TIMEOUT: Final = "ResumeTimeout reached"
"""Slurm's own reason for a node that did not come up in time."""

NOT_RESPONDING: Final = "Not responding"
"""Slurm's own reason for a node that stopped responding."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node and its instances."""

    name: NodeName
    node: Node
    live_instances: tuple[Instance, ...]
    """Pending and running instances. Those that we have decided to terminate are left out."""
    remaining_instances: tuple[Instance, ...]
    """Instances that EC2 has not terminated yet."""
    terminated_instance: Instance | None
    """The node's own instance, seen as ended."""
    launch_expected: bool
    """An instance was launched that EC2 does not list yet."""
    powered_down_instances: tuple[Instance, ...] = ()
    """Live instances that Slurm has powered down, while it waits for another one."""
    unclear_instances: tuple[Instance, ...] = ()
    """Instances in a state that this code does not know."""

    @property
    def disabled_by_admin(self) -> bool:
        """Return whether a person has drained or downed the node."""
        return (self.node.drain or self.node.down) and not self.node.reason_is_ours

    @property
    def downed_by_slurm(self) -> bool:
        """Return whether slurmctld itself set the node DOWN."""
        return self.node.down and self.node.reason.startswith((NOT_RESPONDING, RESUME_TIMEOUT))

    @property
    def without_instance(self) -> bool:
        """Return whether the node has no instance, listed or expected."""
        return not (self.live_instances or self.launch_expected or self.unclear_instances)


def node_states(snapshot: Snapshot) -> Iterator[NodeState]:
    """Yield every node that reconcile may judge.

    A node must be in burst.json and readable, and no live run of resume may work on it.
    """
    instances_of_node = instances_by_node(
        item for item in snapshot.instances if not orphans.has_wrong_tags(snapshot, item)
    )
    listed_ids = {instance.id for instance in snapshot.instances}
    expected_nodes = {
        assignment.node
        for assignment in snapshot.journal.recent_launches.values()
        if assignment.instance_id not in listed_ids
    }
    for name in snapshot.config.pool_by_node:
        if (
            name in snapshot.nodes
            and snapshot.nodes[name].readable
            and name not in snapshot.journal.claimed_nodes
        ):
            instances = instances_of_node.get(name, ())
            yield _node_state(snapshot, name, instances, launch_expected=name in expected_nodes)


def _node_state(
    snapshot: Snapshot, name: NodeName, instances: Sequence[Instance], *, launch_expected: bool
) -> NodeState:
    node = snapshot.nodes[name]
    live = [
        instance
        for instance in instances
        if instance.state.live and instance.id not in snapshot.journal.termination_causes
    ]
    # Only until slurmd answers: an instance that has come up all the same is the node's.
    waiting = node.powering_up and node.not_responding
    powered_down_instances = tuple(
        instance
        for instance in live
        if waiting and instance.id in snapshot.journal.powered_down_ids
    )
    live_instances = tuple(instance for instance in live if instance not in powered_down_instances)
    remaining_instances = tuple(
        instance for instance in instances if instance.state is not InstanceState.TERMINATED
    )
    terminated_instances = [
        instance
        for instance in instances
        if instance.state.not_working and instance.id == node.instance_id
    ]
    unclear_instances = (
        instance for instance in instances if instance.state is InstanceState.UNCLEAR
    )
    unclear = tuple(
        instance
        for instance in unclear_instances
        if instance.id not in snapshot.journal.termination_causes
    )
    return NodeState(
        name,
        node,
        live_instances,
        remaining_instances,
        terminated_instances[0] if terminated_instances else None,
        launch_expected,
        powered_down_instances,
        unclear,
    )
