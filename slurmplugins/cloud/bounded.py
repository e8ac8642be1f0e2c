"""A bound on the whole time of one call: botocore's own is on each piece of the answer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, TypeVar

from slurmplugins.cloud import codes

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmplugins.clock import Clock

_Result = TypeVar("_Result")

CALL_SECONDS: Final = 45.0
"""botocore waits 5 s for a connection and 30 s for a first byte; the rest takes a second."""

_LOOK_EVERY: Final = 1.0


def within(clock: Clock, work: Callable[[], _Result]) -> _Result:
    """Return or raise what `work` does; raise CloudUnreachable once it takes too long.

    It goes on in a thread of its own that no exit waits for. A program of the engine ends within
    minutes, and its threads and connections with it.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again, in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    until = clock.monotonic() + CALL_SECONDS
    thread.start()
    while True:
        thread.join(_LOOK_EVERY)
        if errors:
            raise errors[0]
        if results:
            return results[0]
        if clock.monotonic() >= until:
            raise codes.error("Unreachable", f"no whole answer within {CALL_SECONDS:.0f} s")
