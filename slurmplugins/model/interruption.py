"""EC2's notice that an instance will be interrupted, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NOTICE_SECONDS: Final = 120.0
"""EC2's usual warning time. Used where the time in the notice can't be read."""


class Kind(StrEnum):
    SPOT = "spot-interruption"
    REBALANCE = "rebalance-recommendation"
    SCHEDULED = "scheduled-event"


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice from EC2 about one instance."""

    kind: Kind
    action: str
    """EC2's word for the event at the deadline, such as `terminate`."""
    deadline: float
    """The time at which EC2 takes the instance. For a rebalance: when EC2 announced the risk."""
