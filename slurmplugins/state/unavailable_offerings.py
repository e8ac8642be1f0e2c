"""Capacity memory: which offerings just failed, and until when. Losing it costs a few calls."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import Capacity, PriceTooLow, Quota
from slurmplugins.model.json_input import finite, loads
from slurmplugins.state.persistent_clock import Steady
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from slurmplugins.errors import CloudError
    from slurmplugins.model.offering import Offering
    from slurmplugins.system.clock import Clock

CAPACITY_SECONDS: Final = 120.0
"""Spot pools refill within minutes; a job Slurm holds for two minutes finds them tried anew."""

QUOTA_SECONDS: Final = 300.0
"""A quota changes when machines end or a person acts."""

LONGEST: Final = max(CAPACITY_SECONDS, QUOTA_SECONDS)
"""What is set back for longer is damaged, or of a time that was lost: it is void."""


@dataclass(frozen=True, slots=True)
class Setback:
    """An offering that failed: EC2's code, and when to try again, in the time of `steady`."""

    code: str
    until: float


class OfferingMemory:
    """A small file of setbacks, re-read for each question so that concurrent runs share it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._steady = Steady(path.parent, clock)
        self._lock = threading.Lock()

    def setbacks(self) -> dict[str, Setback]:
        """Setbacks that still hold, by offering key."""
        now = self._steady.now()
        return {
            key: item for key, item in self._load().items() if now < item.until <= now + LONGEST
        }

    def remember(self, offering: Offering, error: CloudError) -> None:
        """Note a failure that says something about the offering rather than about the call."""
        seconds = _seconds(error)
        if not seconds:
            return
        with self._lock:
            known = self.setbacks()
            known[offering.key] = Setback(error.code, self._steady.now() + seconds)
            self._save(known)

    def forget(self, offering: Offering) -> None:
        """A launch worked: whatever was remembered is out of date."""
        with self._lock:
            known = self.setbacks()
            if known.pop(offering.key, None):
                self._save(known)

    def _save(self, known: Mapping[str, Setback]) -> None:
        value = {key: {"code": item.code, "until": item.until} for key, item in known.items()}
        try:
            write_atomically(self._path, json.dumps(value).encode(), mode=0o640)
        except OSError:
            return  # discardable by design: a full disk must not stop a launch

    def _load(self) -> dict[str, Setback]:
        try:
            data = loads(self._path.read_bytes())
            return {
                str(key): Setback(str(item["code"]), finite(item["until"]))
                for key, item in data.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}


def in_turn(offerings: Sequence[Offering], setbacks: Mapping[str, Setback]) -> tuple[Offering, ...]:
    """The offerings to try, in order: those without a setback.

    When all have one, the one whose setback ends first is tried all the same, so that a job finds
    returned capacity without waiting out the memory.
    """
    fresh = tuple(item for item in offerings if item.key not in setbacks)
    if fresh or not offerings:
        return fresh
    return (min(offerings, key=lambda item: setbacks[item.key].until),)


def _seconds(error: CloudError) -> float:
    if isinstance(error, Capacity | PriceTooLow):
        return CAPACITY_SECONDS
    return QUOTA_SECONDS if isinstance(error, Quota) else 0.0
