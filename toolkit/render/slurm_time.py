"""Slurm's times of limits, such as `90`, `08:00:00` and `1-00:00:00`."""

from __future__ import annotations

import re
from typing import Final

UNLIMITED: Final = frozenset({"infinite", "unlimited", "-1"})
MINUTE: Final = 60
_TIME: Final = re.compile(
    r"(?:(?P<days>\d{1,5})-(?P<hours>\d{1,3})(?::(?P<minutes>\d{1,3})(?::(?P<seconds>\d{1,3}))?)?"
    r"|(?P<first>\d{1,9})(?::(?P<second>\d{1,3})(?::(?P<third>\d{1,3}))?)?)",
    re.ASCII,
)


def limit_seconds(text: str) -> int | None:
    """Return a limit in seconds; None for no limit.

    Slurm counts limits in minutes, and rounds up (time_str2mins in parse_time.c). Raises
    ValueError.
    """
    if text.lower() in UNLIMITED:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"no time of Slurm: {text!r}")
    parts = {name: int(value) for name, value in match.groupdict(default="0").items()}
    if match["days"] is not None:
        hours = parts["days"] * 24 + parts["hours"]
        seconds = (hours * 60 + parts["minutes"]) * 60 + parts["seconds"]
    elif match["third"] is not None:
        seconds = (parts["first"] * 60 + parts["second"]) * 60 + parts["third"]
    else:
        seconds = parts["first"] * 60 + parts["second"]
    return -(-seconds // MINUTE) * MINUTE
