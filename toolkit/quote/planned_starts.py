"""Starts that `toolkit submit --cheapest` chose, in the person's record of predictions.

A line has the spot price at submission, so that a report can say what the wait saved.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from toolkit.prices import parse_usd
from toolkit.quote import predictions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A later start of a job. Times are epoch seconds."""

    job: str  # of an array its own number, without a task's
    at: int  # when it was submitted
    begin: int
    deadline: int
    instance_type: str
    usd_per_hour: Decimal
    """The spot price of a whole instance of this type at submission."""

    def as_json(self) -> dict[str, Any]:
        """Return it as values for JSON."""
        return asdict(self) | {"usd_per_hour": f"{self.usd_per_hour:f}"}


def add(path: Path, start: PlannedStart) -> None:
    """Append a start. Raises QuoteError."""
    predictions.append(path, start.as_json())


def read(path: Path) -> tuple[PlannedStart, ...]:
    """Return all starts, each once.

    A line that can't be read is none. Raises QuoteError.
    """
    starts = (from_json(line) for line in predictions.lines(path))
    return tuple(dict.fromkeys(start for start in starts if start is not None))


def from_json(line: Mapping[str, Any]) -> PlannedStart | None:
    """Return the start of a line; None for another line."""
    try:
        usd = parse_usd(str(line["usd_per_hour"]))
        job, instance_type = str(line["job"]), str(line["instance_type"])
        at, begin, deadline = (int(line[name]) for name in ("at", "begin", "deadline"))
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    return None if usd is None else PlannedStart(job, at, begin, deadline, instance_type, usd)
