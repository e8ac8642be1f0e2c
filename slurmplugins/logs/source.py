"""The sources of the shipper: log files and the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from slurmplugins.model.log_line import LogLine

MOST_LINE: Final = 16 * 1024
"""Characters of a line; the rest of a longer one is cut."""


class Source(Protocol):
    """Lines in their order. None is skipped before it was accepted."""

    @property
    def key(self) -> str:
        """Return the name under which the source's position is kept."""
        ...

    @property
    def position(self) -> str:
        """Return the place behind the last accepted line."""
        ...

    @property
    def has_more(self) -> bool:
        """Return whether the last read was cut by its bound."""
        ...

    def read(self, most_bytes: int, *, last: bool = False) -> tuple[LogLine, ...]:
        """Return the next lines, and the same ones again until `accept`.

        At the last read, a line without an end counts too. Raises nothing.
        """
        ...

    def accept(self) -> None:
        """Go on behind the lines of the last read."""
        ...

    def close(self) -> None:
        """Let go of processes."""
        ...
