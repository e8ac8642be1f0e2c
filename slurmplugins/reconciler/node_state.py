"""Collect each node with its instances, as reconcile judges them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.model.instance import InstanceState, machines_by_node
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
    live: tuple[Instance, ...]
    """Pending and running instances. Those that we have decided to terminate are left out."""
    present: tuple[Instance, ...]
    """Instances that EC2 has not terminated yet."""
    evidence: Instance | None
    """The node's own instance, seen as ended."""
    expected: bool
    """An instance was launched that EC2 does not list yet."""
    left: tuple[Instance, ...] = ()
    """Live instances that Slurm has powered down, while it waits for another one."""
    unclear: tuple[Instance, ...] = ()
    """Instances in a state that this code does not know."""

    @property
    def kept_off(self) -> bool:
        """Return whether a person has drained or downed the node."""
        return (self.node.drain or self.node.down) and not self.node.ours

    @property
    def downed_by_slurm(self) -> bool:
        """Return whether slurmctld itself set the node DOWN."""
        return self.node.down and self.node.reason.startswith((NOT_RESPONDING, RESUME_TIMEOUT))

    @property
    def unbacked(self) -> bool:
        """Return whether the node has no instance, listed or expected."""
        return not (self.live or self.expected or self.unclear)


def of(world: Snapshot) -> Iterator[NodeState]:
    """Yield every node that reconcile may judge.

    A node must be in burst.json and readable, and no live run of resume may work on it.
    """
    machines = machines_by_node(item for item in world.instances if not orphans.misfit(world, item))
    listed = {machine.id for machine in world.instances}
    expected = {m.node for m in world.claims.launched.values() if m.instance_id not in listed}
    for name in world.config.pool_by_node:
        if name in world.nodes and world.nodes[name].readable and name not in world.claims.busy:
            found = machines.get(name, ())
            yield _case(world, name, found, expected=name in expected)


def _case(
    world: Snapshot, name: NodeName, machines: Sequence[Instance], *, expected: bool
) -> NodeState:
    node = world.nodes[name]
    live = [m for m in machines if m.state.live and m.id not in world.claims.ended]
    # Only until slurmd answers: an instance that has come up all the same is the node's.
    waits = node.powering_up and node.silent
    left = tuple(m for m in live if waits and m.id in world.claims.let_go)
    kept = tuple(m for m in live if m not in left)
    present = tuple(m for m in machines if m.state is not InstanceState.TERMINATED)
    gone = [m for m in machines if m.state.lost and m.id == node.instance_id]
    unsure = (m for m in machines if m.state is InstanceState.UNCLEAR)
    unclear = tuple(m for m in unsure if m.id not in world.claims.ended)
    return NodeState(name, node, kept, present, gone[0] if gone else None, expected, left, unclear)
