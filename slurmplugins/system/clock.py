"""The clock that code receives as an argument, so that tests control the time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Return seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds since a fixed point of this boot; never goes backwards."""
        ...

    def boot(self) -> str:
        """Return the id of this boot.

        Values of `monotonic` from different boots can't be compared.
        """
        ...

    def sleep(self, seconds: float) -> None:
        """Wait that many seconds."""
        ...


_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Source: random(4)."""


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def boot(self) -> str:
        return _BOOT_ID.read_text().strip()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
