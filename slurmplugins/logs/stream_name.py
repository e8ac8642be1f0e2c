"""The names of streams in a cluster's log group: NODE/INSTANCE, and head/INSTANCE.

So a node's streams have one prefix, also those of instances that no longer exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmplugins.system.clock import Clock

HEAD: Final = "head"
UNIDENTIFIED: Final = "unidentified"
"""The place of a node's name for an instance that never learned it."""


def stream_name(node: str, instance_id: str) -> str:
    """Return the stream of one instance."""
    return f"{node}/{instance_id}"


class OwnStream:
    """The stream of this instance. Its name is known when the first boot knows the node's."""

    def __init__(
        self,
        booted: Callable[[], str | None],
        identify: Callable[[], str],
        clock: Clock,
        *,
        patience: float,
    ) -> None:
        """Take the name from `booted`, or after the patience from `identify`."""
        self._booted = booted
        self._identify = identify
        self._clock = clock
        self._give_up_at = clock.monotonic() + patience
        self._name: str | None = None

    def get(self, *, last: bool) -> str | None:
        """Return the name; None if it is not known yet."""
        if self._name is None:
            self._name = self._booted()
        if self._name is None and (last or self._clock.monotonic() >= self._give_up_at):
            try:
                self._name = self._identify()
            except EngineError:
                return None  # the metadata service does not answer; the next look asks again
        return self._name
