"""Decide whether the lists of Slurm and EC2 are plausible, before anything is terminated. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from slurmplugins.reconciler.snapshot import Snapshot

LEAST_SHARE: Final = 0.5
"""Share of burst.json's nodes, or of instances known to live. A shorter list is not believed."""

FEWEST_MISSING: Final = 3
"""Instances that must have vanished. EC2 forgets one or two instances without being wrong."""

BELIEVED_AFTER: Final = 600.0
"""Seconds after which an unchanged list is believed, however odd. Without this limit, nothing would
be terminated ever again."""


def slurm_doubt(snapshot: Snapshot) -> str:
    """Return why Slurm's list of nodes is not believed.

    Empty when it is believed.
    """
    pool_by_node = snapshot.config.pool_by_node
    readable_nodes = sum(
        1 for name in pool_by_node if name in snapshot.nodes and snapshot.nodes[name].readable
    )
    if readable_nodes < len(pool_by_node) * LEAST_SHARE:
        return f"Slurm lists {readable_nodes} of {len(pool_by_node)} nodes: not believed"
    return ""


def cloud_doubt(snapshot: Snapshot) -> str:
    """Return why EC2's list of instances is not believed.

    Empty when it is believed. EC2 lists terminated instances for about an hour. So an instance that
    is known to live should be listed in some state. It is known from the last pass, or from a
    slurmd on it that answers.
    """
    expected_ids = _expected_ids(snapshot)
    missing_ids = expected_ids - {instance.id for instance in snapshot.instances}
    if len(missing_ids) >= FEWEST_MISSING and len(missing_ids) > len(expected_ids) * LEAST_SHARE:
        return f"EC2 lists none of {len(missing_ids)} of {len(expected_ids)} live machines: not believed"
    return ""


def _expected_ids(snapshot: Snapshot) -> frozenset[str]:
    answering_ids = {
        node.instance_id
        for name in snapshot.config.pool_by_node
        if (node := snapshot.nodes.get(name)) is not None and node.instance_id and node.up
    }
    # A slurmd may answer before EC2 lists its instance.
    return (
        snapshot.known_instances | answering_ids - snapshot.journal.recent_launches.keys()
    ) - snapshot.journal.termination_causes.keys()
