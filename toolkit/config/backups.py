"""The section of cluster.yaml on backups of the head, and its checks."""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from toolkit.config import types
from toolkit.config.raw import Finding, mapping
from toolkit.config.section import Section

DEFAULT_EVERY = "6h"
DEFAULT_KEEP = "30d"
# A dump reads whole databases: more often, and it is always at work.
SHORTEST_SECONDS = 15 * 60
SECONDS_OF_DAY = types.SECONDS["d"]


class Backups(Section):
    """Backups of Slurm's state and the databases to S3, by a timer on the head node."""

    enabled: bool = True
    every: Annotated[str, Field(pattern=types.PERIOD)] = DEFAULT_EVERY
    """The time from one backup to the next, such as 6h."""
    keep: Annotated[str, Field(pattern=types.DAYS)] = DEFAULT_KEEP
    """How long a backup is kept, such as 30d."""

    @property
    def period(self) -> int:
        """Return the seconds from one backup to the next."""
        return types.seconds(self.every)

    @property
    def days(self) -> int:
        """Return the days that a backup is kept."""
        return types.seconds(self.keep) // SECONDS_OF_DAY


def backup_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a period that is too short or too long."""
    section = mapping(raw, "backups")
    every = section.get("every", DEFAULT_EVERY)
    keep = section.get("keep", DEFAULT_KEEP)
    if not (_fits(types.PERIOD, every) and _fits(types.DAYS, keep)):
        return  # the model reports it
    # Without `every` in the file, the line with `keep` is the one to change.
    place = "every" if "every" in section else "keep"
    if types.seconds(every) < SHORTEST_SECONDS:
        yield ("backups", "every"), f"expected 15m or more, found {every}"
    elif 2 * types.seconds(every) > types.seconds(keep):
        message = f"expected a period of at most half of keep {keep}, found {every}:"
        yield ("backups", place), f"{message} one missed backup would leave none"


def filesystem_backup_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a time of day for backups that FSx does not make."""
    shared = mapping(raw, "shared")
    if shared.get("backup_days") == 0 and "backup_time" in shared:
        yield (
            ("shared", "backup_time"),
            "FSx makes no daily backup with backup_days: 0: leave it out",
        )


def _fits(pattern: str, text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(pattern, text) is not None
