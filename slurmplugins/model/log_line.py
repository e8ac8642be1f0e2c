"""A line of a log, on its way from a file or the journal to CloudWatch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line, with the unit that wrote it, such as `slurmd` or `kernel`."""

    at: float
    """Seconds since the epoch."""
    unit: str
    text: str
