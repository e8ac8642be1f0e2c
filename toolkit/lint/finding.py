"""What a rule says about a batch script."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolkit.lint.batch_script.script import Script


class Severity(StrEnum):
    """An error loses work on the first interruption; a warning loses time, logs or money."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing a rule found. `line` is 0 for something that is missing."""

    line: int
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Rule:
    """`slug` is stable: scripts and `# toolkit-lint: ignore=` name it."""

    slug: str
    severity: Severity
    find: Callable[[Script], Iterable[Hit]]


@dataclass(frozen=True, slots=True)
class Finding:
    """A hit, for people and editors."""

    slug: str
    severity: Severity
    line: int
    message: str
    fix: str
