"""What EC2 says of an instance's end, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NOTICE_SECONDS: Final = 120.0
"""What EC2 gives; used where the notice's own time can't be read."""


class Kind(StrEnum):
    SPOT = "spot-interruption"
    REBALANCE = "rebalance-recommendation"
    SCHEDULED = "scheduled-event"


@dataclass(frozen=True, slots=True)
class Notice:
    """`deadline`: when the machine is taken (for a rebalance: when the risk was announced).
    `action`: EC2's word for what happens then.
    """

    kind: Kind
    action: str
    deadline: float
