"""The time that a line of a log states about itself."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

OLDEST: Final = 12 * 3600.0
"""Seconds before now at which a line counts as that old: one call may not span more than a day."""

NEWEST: Final = 60.0
"""Seconds after now; CloudWatch refuses lines of two hours."""

_OF_PROGRAM: Final = re.compile(r'\{"at":(\d{1,12}(?:\.\d{1,6})?)[,}]', re.ASCII)
"""Our own logs (`system.logger`)."""

_OF_SLURM: Final = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?)\] ", re.ASCII)
"""slurm.conf(5), LogTimeFormat: iso8601_ms by default, in local time."""


def time_of(text: str, now: float) -> float:
    """Return the line's own time, or `now` if it states none."""
    return min(max(_stated_time(text, now), now - OLDEST), now + NEWEST)


def _stated_time(text: str, now: float) -> float:
    if match := _OF_PROGRAM.match(text):
        return float(match[1])
    if match := _OF_SLURM.match(text):
        try:
            return datetime.fromisoformat(match[1]).timestamp()
        except (ValueError, OverflowError):
            return now  # digits that are no date
    return now
