"""The closed days of a report, as the report shows them.

`toolkit.usage` keeps closed days and makes these values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.accounting.money import usd
from toolkit.accounting.phrases import day, moment

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class ClosedCorrection:
    """A change of a closed day by a later closing, in micro-dollars."""

    day: int  # its first second
    at: int  # epoch second of the closing
    old: int
    new: int


@dataclass(frozen=True, slots=True)
class ClosedPart:
    """The days of a report that were read from closed charges."""

    days: tuple[int, ...]  # first seconds, in order
    is_whole: bool  # nothing of the report was computed now
    corrections: tuple[ClosedCorrection, ...] = ()


def closed_line(part: ClosedPart) -> str:
    """Return the line of a report."""
    count = f"{len(part.days)} day{'s' if len(part.days) > 1 else ''}"
    rest = "the whole report" if part.is_whole else "the rest is computed now"
    return f"closed: {day(part.days[0])} to {day(part.days[-1])} ({count}); {rest}"


def closed_correction_line(item: ClosedCorrection) -> str:
    """Return the line of one correction."""
    sign = "+" if item.new >= item.old else ""
    return (
        f"correction of closed day {day(item.day)} on {moment(item.at)} UTC: from {usd(item.old)}"
        f" to {usd(item.new)} ({sign}{usd(item.new - item.old)} USD)"
    )


def closed_lines(part: ClosedPart | None) -> Sequence[str]:
    """Return the lines of a report; none without closed days."""
    if part is None:
        return ()
    return [closed_line(part), *map(closed_correction_line, part.corrections)]
