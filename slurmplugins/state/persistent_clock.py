"""Time for what is written down: it never goes back, and no person or NTP can set it.

While the head stays up it goes with the monotonic clock. Over a boot it goes on where it was at the
latest; the time that the head was off does not count, as only the wall clock could tell it. So a
moment never lies ahead, and never longer ago than it truly does by more than `KEEP_EVERY` a boot.
A wait that is written down ends in time, whatever the head's clock is set to. Only differences of
such moments mean anything.

`time.json` holds it. Without the file it begins at the wall clock: safe to lose.
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
"""Seconds that a boot may not know of: it counts them all. A head takes about as long to boot, and
two such boots stay within what the journal's wait for EC2's lists has to spare.
"""

_SANE: Final = 1e11
"""Seconds. What is further away is damage."""


class Steady:
    """The time of one state directory. Safe between processes and threads; raises nothing."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._path = directory / "time.json"
        self._clock = clock
        self._offset: float | None = None
        self._kept = -math.inf

    def now(self) -> float:
        """Seconds, of which only differences mean anything."""
        return self.at(self._clock.monotonic())

    def at(self, monotonic: float) -> float:
        """Give the moment at which the monotonic clock of this boot showed that."""
        return self._base() + monotonic

    def wall(self, moment: float) -> float:
        """Give the moment by the head's clock as it is now, for people."""
        return moment + self._clock.now() - self.now()

    def keep(self) -> None:
        """Write down how late it is, for the next boot."""
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
            # Whoever is first after a boot writes it, and every program has to read it.
            write_atomically(self._path, json.dumps(value).encode(), mode=0o644)
        except OSError:
            return  # each program then begins at the wall clock
        self._kept = now
