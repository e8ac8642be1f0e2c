"""The cloud's list of our machines, read with patience."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.errors import CloudError
from slurmplugins.journal import SETTLE_SECONDS

if TYPE_CHECKING:
    from slurmplugins.model import Instance
    from slurmplugins.runtime import Engine

TRIES: Final = 4

FRESH_SECONDS: Final = SETTLE_SECONDS / 2
"""A list older than this, when its turn to plan has come, is read anew: machines launched since
would be neither in it nor among the journal's recent ones.
"""


def read(engine: Engine) -> tuple[tuple[Instance, ...], float]:
    """The machines, and the moment before which they were as listed."""
    for again in range(TRIES):
        at = engine.clock.monotonic()
        try:
            return engine.cloud.instances(), at
        except CloudError as error:
            engine.log.warning("listing failed", code=error.code, message=error.message)
            if not error.retryable or again == TRIES - 1:
                raise
            from random import random

            engine.clock.sleep(2.0**again * (0.5 + random()))  # noqa: S311 - no secret
    raise AssertionError("unreachable")
