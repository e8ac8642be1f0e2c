"""A finding of either linter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """A finding's severity.

    An error loses jobs, nodes or work. A warning loses time or logs, or is a trap for
    later.
    """

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault in the text, for people and editors."""

    slug: str
    severity: Severity
    line: int  # 0 for something that is missing
    message: str
    fix: str
