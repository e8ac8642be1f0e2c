"""A rule about a batch script, and one thing that it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolkit.lint.batch_script.script import Script
    from toolkit.lint.finding import Severity


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
