"""What EC2 says is wrong with a machine, or will be, and when that is serious. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

IMPAIRED_SECONDS: Final = 180.0
"""Status checks run every minute; one that fails for three is not a hiccup."""

EVENT_HORIZON: Final = 24 * 3600.0
"""A busy node is drained for an event this near; an idle one for any, since it is replaced free."""


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    """What EC2 plans to do to a machine. `code` is EC2's: instance-retirement, system-reboot, …"""

    code: str
    not_before: float


@dataclass(frozen=True, slots=True)
class Health:
    """The troubles of one machine.

    `impaired_since`: since when its status checks fail. `notice`: EC2 is taking it back.
    """

    id: str
    impaired_since: float | None = None
    events: tuple[ScheduledEvent, ...] = ()
    notice: bool = False

    def impaired(self, now: float) -> bool:
        """Its checks have failed for long enough to be believed."""
        return self.impaired_since is not None and now - self.impaired_since >= IMPAIRED_SECONDS

    def event(self, now: float, *, busy: bool) -> ScheduledEvent | None:
        """The first event that a node should be emptied for now."""
        due = [item for item in self.events if not busy or item.not_before - now <= EVENT_HORIZON]
        return min(due, key=lambda item: item.not_before, default=None)
