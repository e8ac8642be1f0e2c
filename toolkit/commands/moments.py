"""Moments that people write in options."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")

_FORMATS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M")
_AGO = re.compile(r"(\d{1,5})([mhdw])")
_EARLIEST = datetime(2006, 1, 1, tzinfo=UTC)
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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
                **{UNITS[relative_time[2]]: int(relative_time[1])}
            )
            return max(since, _EARLIEST)
    for time_format in _FORMATS:
        with suppress(ValueError):
            return datetime.strptime(text, time_format).replace(tzinfo=UTC)
    raise click.BadParameter(f"{text!r} is not a time; write 2026-11-01, 2026-11-01T12:30 or 7d")


def since_option(default: str) -> Callable[[F], F]:
    """Add `--since`, passed on as `since`."""
    return click.option(
        "--since",
        callback=moment,
        default=default,
        show_default=True,
        metavar="TIME",
        help="Start: 2026-11-01, 2026-11-01T12:30 (UTC), or a time before now: 90m, 36h, 7d.",
    )


def until_option(function: F) -> F:
    """Add `--until`, passed on as `until`."""
    return click.option("--until", callback=moment, metavar="TIME", help="End  [default: now].")(
        function
    )


def period(since: datetime, until: datetime | None, now: datetime) -> tuple[int, int]:
    """Return the epoch seconds of both ends.

    The future costs nothing yet, so a period ends now at the latest. Raises UsageError if it is
    empty.
    """
    until = min(until or now, now)
    if since >= until:
        raise click.UsageError(f"--since {since:%Y-%m-%dT%H:%M} is not before --until or now")
    return int(since.timestamp()), int(until.timestamp())
