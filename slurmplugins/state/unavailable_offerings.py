"""Unavailable offerings, each with the time of its next try. Losing the file costs a few calls."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import NoCapacity, PriceTooLow, QuotaExceeded
from slurmplugins.model.json_input import finite, loads
from slurmplugins.state.persistent_clock import PersistentClock
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from slurmplugins.errors import CloudError
    from slurmplugins.model.instance import Offering
    from slurmplugins.system.clock import Clock

CAPACITY_SECONDS: Final = 120.0
"""Seconds. Spot capacity returns within minutes; a job that Slurm holds for two finds it tried."""

QUOTA_SECONDS: Final = 300.0
"""Seconds. A quota changes when instances end or a person acts."""

LONGEST: Final = max(CAPACITY_SECONDS, QUOTA_SECONDS)
"""Seconds. A longer entry is void: it is damaged, or the persistent clock was lost."""


@dataclass(frozen=True, slots=True)
class Unavailability:
    """An offering that failed."""

    code: str
    """EC2's error code."""
    until: float
    """The time of the next try, by the persistent clock."""


class UnavailableOfferings:
    """A small file of unavailable offerings.

    Each call reads it again, so that concurrent processes share it. All methods raise nothing.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._persistent_clock = PersistentClock(path.parent, clock)
        self._lock = threading.Lock()

    def entries(self) -> dict[str, Unavailability]:
        """Return the unavailable offerings by their key."""
        now = self._persistent_clock.now()
        return {
            key: item for key, item in self._load().items() if now < item.until <= now + LONGEST
        }

    def mark_unavailable(self, offering: Offering, error: CloudError) -> None:
        """Record a failure, if it is one of the offering.

        A failure of the call itself tells nothing about the offering.
        """
        seconds = _seconds(error)
        if not seconds:
            return
        with self._lock:
            entries = self.entries()
            entries[offering.key] = Unavailability(
                error.code, self._persistent_clock.now() + seconds
            )
            self._save(entries)

    def mark_available(self, offering: Offering) -> None:
        """Make an offering available again, after a launch succeeded."""
        with self._lock:
            entries = self.entries()
            if entries.pop(offering.key, None):
                self._save(entries)

    def _save(self, entries: Mapping[str, Unavailability]) -> None:
        value = {key: {"code": item.code, "until": item.until} for key, item in entries.items()}
        try:
            write_atomically(self._path, json.dumps(value).encode(), mode=0o640)
        except OSError:
            return  # safe to lose: a full disk must not stop a launch

    def _load(self) -> dict[str, Unavailability]:
        try:
            data = loads(self._path.read_bytes())
            return {
                str(key): Unavailability(str(item["code"]), finite(item["until"]))
                for key, item in data.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}


def available_or_next(
    offerings: Sequence[Offering], entries: Mapping[str, Unavailability]
) -> tuple[Offering, ...]:
    """Return the available offerings, in order.

    If none is available, return the offering whose next try comes first. So a job finds returned
    capacity without waiting for that time.
    """
    available = tuple(item for item in offerings if item.key not in entries)
    if available or not offerings:
        return available
    return (min(offerings, key=lambda item: entries[item.key].until),)


def _seconds(error: CloudError) -> float:
    if isinstance(error, NoCapacity | PriceTooLow):
        return CAPACITY_SECONDS
    return QUOTA_SECONDS if isinstance(error, QuotaExceeded) else 0.0
