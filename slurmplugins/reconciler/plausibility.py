"""Decide whether the lists of Slurm and EC2 are plausible, before anything is terminated. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from slurmplugins.reconciler.snapshot import Snapshot

SHARE: Final = 0.5
"""Share of burst.json's nodes, or of instances known to live. A shorter list is not believed."""

FEWEST: Final = 3
"""Instances that must have vanished. EC2 forgets one or two instances without being wrong."""

BELIEVED_AFTER: Final = 600.0
"""Seconds after which an unchanged list is believed, however odd. Without this limit, nothing would
be terminated ever again."""


def slurm(world: Snapshot) -> str:
    """Return why Slurm's list of nodes is not believed.

    Empty when it is believed.
    """
    ours = world.config.pool_by_node
    known = sum(1 for name in ours if name in world.nodes and world.nodes[name].readable)
    if known < len(ours) * SHARE:
        return f"Slurm lists {known} of {len(ours)} nodes: not believed"
    return ""


def cloud(world: Snapshot) -> str:
    """Return why EC2's list of instances is not believed.

    Empty when it is believed. EC2 lists terminated instances for about an hour. So an instance that
    is known to live should be listed in some state. It is known from the last pass, or from a
    slurmd on it that answers.
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
    # A slurmd may answer before EC2 lists its instance.
    return (world.known | answering - world.claims.launched.keys()) - world.claims.ended.keys()
