"""A rule about a batch script, and its hits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolkit.lint.batch_script.script import Script
    from toolkit.lint.finding import Severity


@dataclass(frozen=True, slots=True)
class Hit:
    """A place where a rule found fault."""

    line: int  # 0 for something that is missing
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule."""

    slug: str  # stable: scripts and `# toolkit-lint: ignore=` name it
    severity: Severity
    find: Callable[[Script], Iterable[Hit]]
