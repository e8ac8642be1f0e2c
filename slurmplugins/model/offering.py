"""Pools, their EC2 offerings, and the order in which offerings are tried. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmplugins.model.hostlist import NodeName


class Lifecycle(StrEnum):
    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True)
class Offering:
    """An instance type in one zone, spot or on demand, that fits a node's shape."""

    type: str
    lifecycle: Lifecycle
    zone: str
    price: str
    """USD an hour, as last known; "0" if unknown."""
    reservation: str = ""
    """The capacity reservation that the instance uses, if any."""
    block: bool = False
    """The reservation is a capacity block, which EC2 sells through a market of its own."""

    @property
    def key(self) -> str:
        kind = self.reservation or self.lifecycle
        return f"{kind}:{self.type}:{self.zone}"


@dataclass(frozen=True, slots=True)
class Pool:
    """Slurm nodes of one shape, with the offerings that can provide them."""

    name: str
    nodes: tuple[NodeName, ...]
    partition: str
    launch_template: str
    subnets: Mapping[str, str]
    """Subnet ids by zone."""
    offerings: tuple[Offering, ...]
    """In order of preference."""
    one_by_one: bool = False
    """Instance types are tried in their order; EC2 never chooses among them."""
    zone_templates: Mapping[str, str] = field(default_factory=dict)
    """Launch templates by zone that state the subnet themselves (placement groups, EFA)."""
    max_spot_share: float = 1.0
    """The largest share of the pool's hourly cost that spot may have, 0 to 1."""


OfferingGroup = tuple[Offering, ...]
"""Offerings of one lifecycle in one zone. One EC2 call covers them all, and any of them will do."""


class PolicyName(StrEnum):
    """An order in which offerings are tried. AS_LISTED is the order of cluster.yaml."""

    AS_LISTED = "as-listed"
    SPOT_ONLY = "spot-only"
    SPOT_FIRST = "spot-first"
    ON_DEMAND_AFTER = "on-demand-after"
    ON_DEMAND_ONLY = "on-demand-only"
    CHEAPEST_FIRST = "cheapest-first"


@dataclass(frozen=True, slots=True)
class Policy:
    """The launch policy of a partition."""

    name: PolicyName = PolicyName.AS_LISTED
    on_demand_after: float = 0.0
    """Seconds that a job waits for spot before it may use on-demand instances."""
