"""Findings about a site, and the result of its preflight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkit.lint.finding import Finding, Severity
from toolkit.output import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolkit.join.preflight.cloud import CloudSide
    from toolkit.join.preflight.facts import PreflightFacts, Unanswered


@dataclass(frozen=True, slots=True)
class Origin:
    """The place of a fact: a line of a file, or a command."""

    name: str  # a path, or a command with its field
    line: int = 0  # 0 for a command, and for what is missing in a file

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name


@dataclass(frozen=True, slots=True)
class Hit:
    """A fault that a rule found."""

    origin: Origin
    message: str
    fix: str  # a sentence
    setting: str = ""  # the exact line or command


@dataclass(frozen=True, slots=True)
class SiteRule:
    """A rule about a site and the nodes that come to it."""

    slug: str  # stable
    severity: Severity
    source: str  # URL of the documentation
    find: Callable[[PreflightFacts, CloudSide], Iterable[Hit]]


@dataclass(frozen=True, slots=True)
class SiteFinding(Finding):
    """A finding about a site. With an error, nodes or jobs could not work.

    `fix` is the mend as a sentence, and `setting` is its exact text.
    """

    origin: str
    setting: str
    source: str

    @property
    def headline(self) -> str:
        """Return the finding in one line, without its mend."""
        return f"{self.severity}: {self.origin}: {self.message} [{self.slug}]"

    def __str__(self) -> str:
        lines = [self.headline, f"  fix: {self.fix}"]
        if self.setting:
            lines += [f"    {line}" for line in self.setting.splitlines()]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class SiteCheck:
    """The result of a preflight; errors come first, then the order of the rules."""

    site: str
    findings: tuple[SiteFinding, ...]
    unanswered: tuple[Unanswered, ...] = ()

    @property
    def errors(self) -> tuple[SiteFinding, ...]:
        """Return the findings with which nodes or jobs could not work."""
        return tuple(item for item in self.findings if item.severity is Severity.ERROR)

    @property
    def ready(self) -> bool:
        """Return whether a join may begin."""
        return not self.errors

    @property
    def sentence(self) -> str:
        """Return the result in one sentence."""
        verb = "is ready" if self.ready else "is not ready"
        errors, warnings = len(self.errors), len(self.findings) - len(self.errors)
        counts = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
        unanswered = f", {counted(len(self.unanswered), 'question')} without an answer"
        return f"{self.site} {verb}: {counts}{unanswered if self.unanswered else ''}"

    def to_json(self) -> dict[str, Any]:
        """Return the result for `--json`."""
        return {
            "ready": self.ready,
            "site": self.site,
            "findings": self.findings,
            "unanswered": self.unanswered,
        }
