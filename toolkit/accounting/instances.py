"""An instance that costs money, from its launch to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.prices import PriceQuery

if TYPE_CHECKING:
    from decimal import Decimal

HEAD_POOL = "head"
INTERRUPTION = "interruption"
RESUME_FAILED = "resume-failed"
BOOT_FAILED = "boot-failed"
ORPHAN = "orphan"
NEVER_UP = frozenset({RESUME_FAILED, BOOT_FAILED})
"""End causes of instances on which no job can have run."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An EC2 instance of the cluster. Times are whole seconds since the epoch."""

    instance_id: str
    node: str  # empty unless its tags name it
    pool: str
    instance_type: str
    zone: str
    spot: bool
    launched: int  # rounded down
    ended: int | None  # rounded up; None: still running
    end_cause: str
    tag_price: Decimal | None  # US dollars an hour, from its price tag at launch
    end_seen: bool = True  # False: nobody observed the end, and `ended` is the last sign of life

    @property
    def is_head(self) -> bool:
        """Return whether it is the head node, whose cost no job causes."""
        return self.pool == HEAD_POOL

    @property
    def interrupted(self) -> bool:
        """Return whether EC2 reclaimed it."""
        return self.spot and self.end_cause == INTERRUPTION

    def price_query(self) -> PriceQuery:
        """Return the question for the price book."""
        return PriceQuery(self.instance_type, self.zone, self.spot, self.tag_price, self.launched)
