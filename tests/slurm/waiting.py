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


def until(what: str, condition: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Return the first true value of `condition`, called every second.

    Raises AssertionError after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(1)
    return value
