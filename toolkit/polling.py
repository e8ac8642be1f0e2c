"""Waits for something elsewhere: look, pause, look again, until the time is up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

POLL_SECONDS = 2.0


class Wait:
    """A wait of limited time. The caller looks, and raises its own error when it is over."""

    def __init__(
        self,
        seconds: float,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
        *,
        pause: float | None = None,  # seconds; None: POLL_SECONDS
    ) -> None:
        """Begin the wait now."""
        self._sleep = sleep
        self._clock = clock
        self._end = clock() + seconds
        self._pause = pause

    @property
    def is_over(self) -> bool:
        """Return whether the time is up."""
        return self._clock() > self._end

    def pause(self) -> None:
        """Sleep until the next look."""
        self._sleep(POLL_SECONDS if self._pause is None else self._pause)
