"""New lines as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from toolkit.logs.log_group import Line, LogGroup, Stream

PERIOD: Final = 2.0
OVERLAP: Final = 30.0
"""Seconds that are read again each time: a node may send a line that much later than another."""


def follow(
    group: LogGroup,
    streams: Callable[[], Sequence[Stream]],
    since: float,
    sleep: Callable[[float], None],
) -> Iterator[Line]:
    """Yield lines without an end, each once.

    Streams of new instances join, since they are looked up each time.
    """
    shown: dict[str, float] = {}
    while True:
        for line in group.lines(streams(), since):
            if line.id not in shown:
                shown[line.id] = line.at
                yield line
        since = max(since, max(shown.values(), default=since) - OVERLAP)
        shown = {name: at for name, at in shown.items() if at >= since}
        sleep(PERIOD)
