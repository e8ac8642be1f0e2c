"""Says which partitions get nodes that are close to each other (docs/adr/0050)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.model.topology import TOPOLOGY
from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.config.model import ClusterConfig

TOPOLOGY_SINCE: Final = SlurmVersion(25, 11)
"""The first series on which a node was told its place while it ran."""


def topology_of(config: ClusterConfig, pools: Sequence[str]) -> str:
    """Return the topology of a partition of these pools.

    It is "" where all nodes count as equally close. Distance makes a difference where an admin paid
    for closeness: a placement group, or EFA. The topology of a site that we joined is its own.
    """
    version = SlurmVersion.parse(config.slurm.version)
    if config.site or config.slurm.topology == "flat" or version < TOPOLOGY_SINCE:
        return ""
    return TOPOLOGY if any(config.pools[pool].zonal for pool in pools) else ""


def pool_has_topology(config: ClusterConfig, pool: str) -> bool:
    """Return whether a partition of this pool has a topology."""
    return any(
        topology_of(config, partition.pools)
        for partition in config.partitions.values()
        if pool in partition.pools
    )


def has_topology(config: ClusterConfig) -> bool:
    """Return whether any partition has a topology."""
    return any(topology_of(config, partition.pools) for partition in config.partitions.values())
