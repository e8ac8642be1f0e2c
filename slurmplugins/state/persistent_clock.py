"""A clock for times in state files. It never goes back, and neither people nor NTP can set it.

While the head stays up, it runs with the monotonic clock. After a boot it continues from the latest
time that it can have shown. The time that the head was off does not count, as only the wall clock
could tell it. Therefore a stored time never lies in the future. It never seems older than it is by
more than SAVE_EVERY per boot. A stored wait ends in time, whatever the head's clock is set to.
Only differences of such times have a meaning.

`time.json` holds the time. Without the file it begins at the wall clock: safe to lose.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final

from slurmplugins.model.json_input import finite, loads
from slurmplugins.system.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.system.clock import Clock

SAVE_EVERY: Final = 30.0
"""Seconds between two saves. After a boot it is unknown how many of them passed: all are counted.

A head takes about as long to boot. Two such boots stay within the spare time of the journal's wait
for EC2's lists.
"""

_SANE: Final = 1e11
"""Seconds. A file with a larger time is damaged."""


class PersistentClock:
    """The clock of one state directory. Safe between processes and threads; raises nothing."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._path = directory / "time.json"
        self._clock = clock
        self._offset: float | None = None
        self._saved_at = -math.inf

    def now(self) -> float:
        """Return the time in seconds. Only differences have a meaning."""
        return self.at(self._clock.monotonic())

    def at(self, monotonic: float) -> float:
        """Return the time at which this boot's monotonic clock showed `monotonic`."""
        return self._boot_offset() + monotonic

    def wall(self, moment: float) -> float:
        """Return the same time by the head's present wall clock, for people."""
        return moment + self._clock.now() - self.now()

    def save_if_due(self) -> None:
        """Save the time for the next boot, at most every SAVE_EVERY seconds."""
        now = self.now()
        if now - self._saved_at >= SAVE_EVERY:
            self._save(now)

    def _boot_offset(self) -> float:
        if self._offset is None:
            boot, offset, saved_time = self._load()
            self._saved_at = saved_time
            if boot != self._clock.boot():
                start = self._clock.now() if saved_time == -math.inf else saved_time + SAVE_EVERY
                offset = start - self._clock.monotonic()
                self._offset = offset
                self._save(self.now())
            self._offset = offset
        return self._offset

    def _load(self) -> tuple[str, float, float]:
        try:
            data = loads(self._path.read_bytes())
            offset, saved_time = finite(data["offset"]), finite(data["last"])
        except (OSError, ValueError, KeyError, TypeError):
            return "", 0.0, -math.inf
        if max(abs(offset), abs(saved_time)) > _SANE:
            return "", 0.0, -math.inf
        return str(data["boot"]) if "boot" in data else "", offset, saved_time

    def _save(self, now: float) -> None:
        value = {"boot": self._clock.boot(), "offset": self._offset, "last": now}
        try:
            # The first program after a boot writes it, and every program must be able to read it.
            write_atomically(self._path, json.dumps(value).encode(), mode=0o644)
        except OSError:
            return  # each program then begins at the wall clock
        self._saved_at = now
