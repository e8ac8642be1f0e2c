"""Whether what Slurm and EC2 list can be true. When it can't, nothing is ended on it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from slurmplugins.reconciler.snapshot import Snapshot

SHARE: Final = 0.5
"""Of the nodes that burst.json has, or of the machines known to live: fewer are not believed."""

FEWEST: Final = 3
"""Machines that must have vanished; EC2 forgets one or two machines without being wrong."""

BELIEVED_AFTER: Final = 600.0
"""A list that stays the same for ten minutes is true, however odd; the rest would never end."""


def slurm(world: Snapshot) -> str:
    """Why Slurm's list of nodes is not believed; empty when it is."""
    ours = world.config.pool_by_node
    known = sum(1 for name in ours if name in world.nodes and world.nodes[name].readable)
    if known < len(ours) * SHARE:
        return f"Slurm lists {known} of {len(ours)} nodes: not believed"
    return ""


def cloud(world: Snapshot) -> str:
    """Why EC2's list of machines is not believed; empty when it is.

    EC2 lists ended machines for about an hour. So a machine that is known to live, from the last
    pass or from a slurmd on it that answers, should be listed in one state or another.
    """
    expected = _expected(world)
    missing = expected - {machine.id for machine in world.instances}
    if len(missing) >= FEWEST and len(missing) > len(expected) * SHARE:
        return f"EC2 lists none of {len(missing)} of {len(expected)} live machines: not believed"
    return ""


def _expected(world: Snapshot) -> frozenset[str]:
    answering = {
        node.instance_id
        for name in world.config.pool_by_node
        if (node := world.nodes.get(name)) is not None and node.instance_id and node.up
    }
    # A slurmd may answer before the cloud lists its machine.
    return (world.known | answering - world.claims.launched.keys()) - world.claims.ended.keys()
