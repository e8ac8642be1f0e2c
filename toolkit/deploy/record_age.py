"""The age of the records of money, and whether a person should look. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurmplugins.model import json_input
from toolkit.deploy.backup_age import age_text

if TYPE_CHECKING:
    from collections.abc import Mapping

PERIOD = 1800
LATE_SECONDS = 4 * PERIOD
"""Seconds without a page after which `toolkit status` warns: a run may fail, or take long."""


@dataclass(frozen=True, slots=True)
class LastRecords:
    """The head's words on its records. Times are epoch seconds, None before the first."""

    attempts: int | None = None  # attempts are written up to here
    settled: int | None = None  # and none of them can come later, up to here
    instances: int | None = None
    error: str = ""  # of a later run that failed


def parse(status: Mapping[str, Any] | None) -> LastRecords:
    """Read the head's object; what can't be read counts as no records."""
    value = status or {}
    try:
        return LastRecords(
            attempts=_time(value.get("attempts")),
            settled=_time(value.get("settled")),
            instances=_time(value.get("instances")),
            error=str(value.get("error") or ""),
        )
    except ValueError:
        return LastRecords()


def warning(last: LastRecords, now: float, head_since: float) -> str:
    """Return a warning for a person; empty if all is well.

    `head_since` is the launch of the head's instance: a new one has written no page yet.
    """
    cause = f": {last.error}" if last.error else ""
    if now - max(last.attempts or 0, head_since) > LATE_SECONDS:
        known = f"end {age_text(now - last.attempts)} ago" if last.attempts else "do not exist"
        return f"the records of attempts {known}, and are due every {age_text(PERIOD)}{cause}"
    return f"the last records could not be written{cause}" if last.error else ""


def _time(value: object) -> int | None:
    return None if value is None else int(json_input.finite(value))
