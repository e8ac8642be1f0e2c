"""The age of the last good backup, and whether a person should look. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurmplugins.model import json_input

if TYPE_CHECKING:
    from collections.abc import Mapping

# Periods without a good backup after which `toolkit status` warns: one may fail, and is repeated.
LATE_PERIODS = 3
MINUTE, HOUR, DAY = 60, 3600, 86_400


@dataclass(frozen=True, slots=True)
class LastBackup:
    """The head's words on its backups."""

    id: str = ""  # of the last good one; empty: there is none
    at: float = 0.0
    error: str = ""  # of a later one that failed


def parse(status: Mapping[str, Any] | None) -> LastBackup:
    """Read the head's object; what can't be read counts as no backup."""
    value = status or {}
    good = value.get("good")
    good = good if isinstance(good, dict) else {}
    error = str(value.get("error") or "")
    try:
        return LastBackup(str(good["id"]), json_input.finite(good["at"]), error)
    except (KeyError, ValueError):
        return LastBackup(error=error)


def warning(last: LastBackup, period: int, now: float, head_since: float) -> str:
    """Return a warning for a person; empty if all is well.

    `head_since` is the launch of the head's instance: a new one has made no backup yet.
    """
    cause = f": {last.error}" if last.error else ""
    since = max(last.at, head_since)
    if now - since > LATE_PERIODS * period:
        known = f"is {age_text(now - last.at)} old" if last.id else "does not exist"
        return f"the last good backup {known}, and one is due every {age_text(period)}{cause}"
    return f"the last backup failed{cause}" if last.error else ""


def age_text(seconds: float) -> str:
    """Return a duration for people, such as `3 h`."""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * unit or (seconds >= unit and seconds % unit == 0):
            return f"{seconds // unit:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"
