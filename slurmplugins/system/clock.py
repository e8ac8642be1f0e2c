"""Time, injected, so that tests own it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds from some fixed point of this boot; never goes backwards."""
        ...

    def boot(self) -> str:
        """Which boot of the machine this is: `monotonic` of another one can't be compared."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        ...


_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""random(4)."""


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def boot(self) -> str:
        return _BOOT_ID.read_text().strip()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
