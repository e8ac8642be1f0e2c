"""A clock for times in state files. It never goes back, and neither people nor NTP can set it.

While the head stays up, it runs with the monotonic clock. After a boot it continues from the latest
time that it can have shown. The time that the head was off does not count, as only the wall clock
could tell it. Therefore a stored time never lies in the future. It never seems older than it is by
more than `KEEP_EVERY` per boot. A stored wait ends in time, whatever the head's clock is set to.
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

KEEP_EVERY: Final = 30.0
"""Seconds between two saves. After a boot it is unknown how many of them passed: all are counted.

A head takes about as long to boot. Two such boots stay within the spare time of the journal's wait
for EC2's lists.
"""

_SANE: Final = 1e11
"""Seconds. A file with a larger time is damaged."""


class Steady:
    """The clock of one state directory. Safe between processes and threads; raises nothing."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._path = directory / "time.json"
        self._clock = clock
        self._offset: float | None = None
        self._kept = -math.inf

    def now(self) -> float:
        """Return the time in seconds. Only differences have a meaning."""
        return self.at(self._clock.monotonic())

    def at(self, monotonic: float) -> float:
        """Return the time at which this boot's monotonic clock showed `monotonic`."""
        return self._base() + monotonic

    def wall(self, moment: float) -> float:
        """Return the same time by the head's present wall clock, for people."""
        return moment + self._clock.now() - self.now()

    def keep(self) -> None:
        """Save the time for the next boot, at most every KEEP_EVERY seconds."""
        now = self.now()
        if now - self._kept >= KEEP_EVERY:
            self._save(now)

    def _base(self) -> float:
        if self._offset is None:
            boot, offset, last = self._load()
            self._kept = last
            if boot != self._clock.boot():
                began = self._clock.now() if last == -math.inf else last + KEEP_EVERY
                offset = began - self._clock.monotonic()
                self._offset = offset
                self._save(self.now())
            self._offset = offset
        return self._offset

    def _load(self) -> tuple[str, float, float]:
        try:
            data = loads(self._path.read_bytes())
            offset, last = finite(data["offset"]), finite(data["last"])
        except (OSError, ValueError, KeyError, TypeError):
            return "", 0.0, -math.inf
        if max(abs(offset), abs(last)) > _SANE:
            return "", 0.0, -math.inf
        return str(data["boot"]) if "boot" in data else "", offset, last

    def _save(self, now: float) -> None:
        value = {"boot": self._clock.boot(), "offset": self._offset, "last": now}
        try:
            # The first program after a boot writes it, and every program must be able to read it.
            write_atomically(self._path, json.dumps(value).encode(), mode=0o644)
        except OSError:
            return  # each program then begins at the wall clock
        self._kept = now
