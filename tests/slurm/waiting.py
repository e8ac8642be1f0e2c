"""Waiting for a condition of the real world.

The error names the thing that did not come.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
PATIENCE = 900.0
"""Seconds. The limit ends a test that hangs. It is no law, because the test host may be busy."""
PAUSE, LONGEST_PAUSE = 1.0, 5.0  # seconds between two looks


def until(what: str, condition: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Return the first true value of `condition`, called again and again.

    The pause is a second, and longer after a call that took long. So a test that waits leaves the
    CPU to the work that it waits for. Raises AssertionError after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if value := condition():
            return value
        ended = time.monotonic()
        assert ended < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(min(max(PAUSE, 2 * (ended - began)), LONGEST_PAUSE))
