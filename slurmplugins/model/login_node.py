"""The state of a login node, as it reports it. A value only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SILENT_SECONDS: Final = 90.0
"""A login node without a report for this time is silent. It reports every 15 seconds."""


@dataclass(frozen=True, slots=True)
class LoginNodeReport:
    """The state of a login node at one time."""

    name: str
    instance_id: str = ""
    at: float = 0.0
    """Seconds since the epoch."""
    host_key: str = ""
    """The public key of its sshd."""
    problem: str = ""
    """Why users can't work there, in words for people; empty: they can."""

    def is_silent(self, now: float) -> bool:
        """Return whether it has not reported for too long."""
        return now - self.at > SILENT_SECONDS
