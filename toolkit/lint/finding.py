"""What a rule says about a batch script."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """An error loses work on the first interruption; a warning loses time, logs or money."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """A hit, for people and editors."""

    slug: str
    severity: Severity
    line: int
    message: str
    fix: str
