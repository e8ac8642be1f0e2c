"""A finding of either linter: of a batch script, or of a slurm.conf."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """An error loses jobs, nodes or work; a warning loses time or logs, or is a trap for later."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """A hit, for people and editors. `line` is 0 for something that is missing."""

    slug: str
    severity: Severity
    line: int
    message: str
    fix: str
