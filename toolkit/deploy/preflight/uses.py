"""Every use of an instance type in cluster.yaml: head, login nodes, builders, offerings. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.config import ClusterConfig
    from toolkit.config.model import OfferingSection, PoolSection
    from toolkit.config.raw import KeyPath

Lifecycle = Literal["spot", "on-demand", "capacity-block"]


@dataclass(frozen=True, slots=True)
class Use:
    """An instance type at one place of cluster.yaml."""

    key_path: KeyPath
    instance_type: str
    lifecycle: Lifecycle
    zones: tuple[str, ...]  # empty: any zone of the region
    count: int  # the most at once
    pool: str = ""  # empty: the head node, login nodes or image builders


BUILDERS = 2  # an image for the head node and one for compute nodes, built side by side


def uses(config: ClusterConfig) -> tuple[Use, ...]:
    """Return every use, in the order of the model."""
    builder = Use(("images", "builder_type"), config.images.builder_type, "on-demand", (), BUILDERS)
    head_zones = (config.network.head_zone,)
    head = Use(("head", "instance_type"), config.head.instance_type, "on-demand", head_zones, 1)
    login = config.login_nodes
    login_key = ("login_nodes", "instance_type")
    login_use = Use(login_key, login.instance_type, "on-demand", head_zones, login.count)
    return (head, *([login_use] if login.count else []), builder, *_pool_uses(config))


def _pool_uses(config: ClusterConfig) -> Iterator[Use]:
    for name, pool in config.pools.items():
        for index, offering in enumerate(pool.offerings):
            yield Use(
                ("pools", name, "offerings", index, "type"),
                offering.type,
                offering.capacity,
                config.offering_zones(name, offering),
                pool.count,
                name,
            )


def offering_of(config: ClusterConfig, use: Use) -> tuple[PoolSection, OfferingSection]:
    """Return the pool and the offering of a pool's use."""
    pool = config.pools[use.pool]
    return pool, pool.offerings[int(use.key_path[3])]


def reachable(config: ClusterConfig, pool: str) -> tuple[frozenset[str], ...]:
    """Return the lifecycles that each partition of a pool may use."""
    return tuple(
        _lifecycles(partition.policy)
        for partition in config.partitions.values()
        if pool in partition.pools
    )


def _lifecycles(policy: str) -> frozenset[str]:
    if policy == "spot-only":
        return frozenset({"spot"})
    if policy == "on-demand-only":
        return frozenset({"on-demand", "capacity-block"})
    return frozenset({"spot", "on-demand", "capacity-block"})
