"""Waiting for something of the real world, with a word about what did not come."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
PATIENCE = 900.0
"""Seconds. It ends a test that hangs, and is no law: the machine may have other work."""


def until(what: str, condition: Callable[[], T], seconds: float = PATIENCE) -> T:
    """The first true answer of `condition`, asked every second; an error after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(1)
    return value
