"""One machine that costs money: from its launch to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.prices import Ask

if TYPE_CHECKING:
    from decimal import Decimal

HEAD_POOL = "head"
INTERRUPTION = "interruption"
RESUME_FAILED = "resume-failed"
BOOT_FAILED = "boot-failed"
ORPHAN = "orphan"
NEVER_UP = frozenset({RESUME_FAILED, BOOT_FAILED})
"""Ends of machines on which no job can have run."""


@dataclass(frozen=True, slots=True)
class Instance:
    """An EC2 instance of the cluster. Times are whole seconds since the epoch.

    `launched` is rounded down and `ended` up; None means that it is still running. `end_seen` is
    False where the end itself was not observed and the last sign of life stands in for it.
    """

    instance_id: str
    node: str
    pool: str
    instance_type: str
    zone: str
    spot: bool
    launched: int
    ended: int | None
    end_cause: str
    believed: Decimal | None
    end_seen: bool = True

    @property
    def is_head(self) -> bool:
        """Whether it is the head node, whose cost no job causes."""
        return self.pool == HEAD_POOL

    @property
    def interrupted(self) -> bool:
        """Whether EC2 itself took it back."""
        return self.spot and self.end_cause == INTERRUPTION

    def ask(self) -> Ask:
        """What the price book has to know."""
        return Ask(self.instance_type, self.zone, self.spot, self.believed, self.launched)
