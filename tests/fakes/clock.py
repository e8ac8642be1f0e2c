"""A clock that tests move by hand; sleeping moves it too."""

from __future__ import annotations

START = 1_795_000_000.0


class FakeClock:
    def __init__(self, now: float = START) -> None:
        self._now = now
        self.slept: list[float] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._now += seconds

    def advance(self, seconds: float) -> None:
        self._now += seconds
