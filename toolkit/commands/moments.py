"""Moments that people write in options."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import click

_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M")
_AGO = re.compile(r"(\d{1,5})([mhdw])")
_EARLIEST = datetime(2006, 1, 1, tzinfo=UTC)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(_ctx: click.Context, _param: click.Parameter, text: str | None) -> datetime | None:
    """Parse a time in UTC, or a time before now.

    Examples: `2026-11-01`, `2026-11-01T12:30`, `90m`, `36h`, `7d`.
    """
    if text is None:
        return None
    if relative_time := _AGO.fullmatch(text):
        # Nothing here is older than EC2, whose first year was 2006.
        with suppress(OverflowError):
            since = datetime.now(UTC) - timedelta(
                **{_UNITS[relative_time[2]]: int(relative_time[1])}
            )
            return max(since, _EARLIEST)
    for time_format in _FORMATS:
        with suppress(ValueError):
            return datetime.strptime(text, time_format).replace(tzinfo=UTC)
    raise click.BadParameter(f"{text!r} is not a time; write 2026-11-01, 2026-11-01T12:30 or 7d")
