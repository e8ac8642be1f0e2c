"""Pools, what EC2 offers for them, and in which order it is tried. Values only."""

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
    """Where a node's shape can be had. `price` is USD an hour, as last known; "0" is not known.

    `reservation` is the capacity reservation that the machine is to use, and `block` says that it
    is a capacity block, which EC2 sells through a market of its own.
    """

    type: str
    lifecycle: Lifecycle
    zone: str
    price: str
    reservation: str = ""
    block: bool = False

    @property
    def key(self) -> str:
        kind = self.reservation or self.lifecycle
        return f"{kind}:{self.type}:{self.zone}"


@dataclass(frozen=True, slots=True)
class Pool:
    """Slurm nodes of one shape, and the offerings that fill them, in order of preference.

    `one_by_one`: instance types are tried in their order and never left to EC2 to choose from.
    `zone_templates` maps zones to launch templates that say the subnet themselves (placement
    groups, EFA). `max_spot_share` bounds spot's share of what the pool costs an hour.
    """

    name: str
    nodes: tuple[NodeName, ...]
    partition: str
    launch_template: str
    subnets: Mapping[str, str]
    offerings: tuple[Offering, ...]
    one_by_one: bool = False
    zone_templates: Mapping[str, str] = field(default_factory=dict)
    max_spot_share: float = 1.0


Rung = tuple[Offering, ...]
"""Offerings of one lifecycle in one zone, any of which will do: one call is made for them."""


class Preference(StrEnum):
    """In which order offerings are tried; AS_LISTED is the order of cluster.yaml."""

    AS_LISTED = "as-listed"
    SPOT_ONLY = "spot-only"
    SPOT_FIRST = "spot-first"
    ON_DEMAND_AFTER = "on-demand-after"
    ON_DEMAND_ONLY = "on-demand-only"
    CHEAPEST_FIRST = "cheapest-first"


@dataclass(frozen=True, slots=True)
class Policy:
    """A partition's. `after`: seconds a job waits for spot before it may go on demand."""

    preference: Preference = Preference.AS_LISTED
    after: float = 0.0
