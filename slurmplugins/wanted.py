"""What jobs ask for, and what there is to be had for it: the values that burst.json and the resume
file are read into. Apart from the rest of `model`, which has them too, so that resume understands
its ask before it loads what it works with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmplugins.names import NodeName


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


@dataclass(frozen=True, slots=True)
class JobAsk:
    """The nodes one job waits for. `job` is None for nodes that no job is known to want, and
    `partition` is empty where Slurm did not say it. `shared`: nodes that it waits for as well, and
    that the ask of a job before it brings. `whole`: the het job's number, of a component.
    """

    job: int | None
    nodes: tuple[NodeName, ...]
    partition: str = ""
    shared: tuple[NodeName, ...] = ()
    whole: int | None = None

    @property
    def wanted(self) -> tuple[NodeName, ...]:
        """All nodes without which the job can't begin."""
        return (*self.nodes, *self.shared)
