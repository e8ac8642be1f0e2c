"""Collect each node with its instances, and find forgotten registrations. Pure.

A slurmctld that is killed restores nodes as it last saved them, up to five minutes old. A node may
come back as powering up, or as powered down under a job that runs there. slurmctld asks such a node
for nothing, and learns of it only by a registration. slurmd registers when it is reloaded, with the
boot time that it had, and its jobs go on (seen with Slurm 24.11).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.model.instance import InstanceState, instances_by_node
from slurmplugins.reconciler import orphans
from slurmplugins.reconciler.snapshot import RegistrationRequests

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


LATE_SHARE: Final = 0.25
"""Share of ResumeTimeout. A healthy instance has registered by then, and time remains to do it
again."""

REQUEST_INTERVAL: Final = 60.0
"""Seconds between two requests to one node. slurmd finishes its current work before it reloads."""


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
    """The node's own instance, which EC2 lists as terminated or stopped."""
    launch_expected: bool
    """An instance was launched that EC2 does not list yet."""
    powered_down_instances: tuple[Instance, ...] = ()
    """Live instances that Slurm has powered down, while it waits for another one."""
    unclear_instances: tuple[Instance, ...] = ()
    """Instances in a state that InstanceState does not know."""

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

    A node must be in burst.json and readable, and no ResumeProgram may have claimed it.
    """
    instances = instances_by_node(
        item for item in snapshot.instances if not orphans.has_wrong_tags(snapshot, item)
    )
    listed_ids = {item.id for item in snapshot.instances}
    launches = snapshot.journal.recent_launches.values()
    expected_nodes = {item.node for item in launches if item.instance_id not in listed_ids}
    for name in snapshot.config.pool_by_node:
        node = snapshot.nodes.get(name)
        if node is None or not node.readable or name in snapshot.journal.claimed_nodes:
            continue
        yield _node_state(
            snapshot, name, instances.get(name, ()), launch_expected=name in expected_nodes
        )


def _node_state(
    snapshot: Snapshot, name: NodeName, instances: Sequence[Instance], *, launch_expected: bool
) -> NodeState:
    node, journal = snapshot.nodes[name], snapshot.journal
    kept = [item for item in instances if item.id not in journal.termination_causes]
    live = [item for item in kept if item.state.live]
    # Only until slurmd answers: an instance that has come up all the same is the node's.
    waiting = node.powering_up and node.not_responding
    refused = tuple(item for item in live if waiting and item.id in journal.powered_down_ids)
    terminated = [i for i in instances if i.state.not_working and i.id == node.instance_id]
    return NodeState(
        name,
        node,
        live_instances=tuple(item for item in live if item not in refused),
        remaining_instances=tuple(
            item for item in instances if item.state is not InstanceState.TERMINATED
        ),
        terminated_instance=terminated[0] if terminated else None,
        launch_expected=launch_expected,
        powered_down_instances=refused,
        unclear_instances=tuple(i for i in kept if i.state is InstanceState.UNCLEAR),
    )


def is_forgotten(snapshot: Snapshot, state: NodeState) -> bool:
    """Return whether slurmctld seems to have forgotten the node's registration."""
    node = state.node
    if node.down or node.power_down_requested or node.powering_down:
        return False
    if node.powered_down:
        return node.busy and not node.power_up_pending
    late_age = snapshot.config.resume_timeout * LATE_SHARE
    waiting = node.powering_up and node.not_responding
    return waiting and any(snapshot.age(item) >= late_age for item in state.live_instances)


def next_requests(snapshot: Snapshot, name: NodeName) -> RegistrationRequests:
    """Return the request times to remember for a forgotten node.

    The node is requested to register now if `last` is now.
    """
    requests, now = snapshot.registration_requests.get(name), snapshot.moment
    if requests is None or requests.last > now:
        return RegistrationRequests(now, now)
    is_due = now - requests.last >= REQUEST_INTERVAL
    return RegistrationRequests(requests.first, now) if is_due else requests
