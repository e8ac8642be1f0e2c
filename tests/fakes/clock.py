"""A clock that tests move by hand; sleeping moves it too."""

from __future__ import annotations

START = 1_795_000_000.0


class FakeClock:
    """A wall clock and a monotonic clock for tests.

    `now` can jump, as a wall clock does when it is set. `monotonic` only goes forward.
    """

    def __init__(self, now: float = START, boot: str = "1") -> None:
        self._now = now
        self._boot = boot
        self._offset = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self._now + self._offset

    def monotonic(self) -> float:
        return self._now

    def boot(self) -> str:
        return self._boot

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._now += seconds

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._offset += seconds
