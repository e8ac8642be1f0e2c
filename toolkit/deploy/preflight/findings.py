"""Findings of a preflight: errors, warnings and notes, with their lines in cluster.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from toolkit.errors import Problem

if TYPE_CHECKING:
    from toolkit.config.raw import KeyPath


class Severity(StrEnum):
    """A finding's severity.

    With an error, deploy would fail or a pool could never start a node. A warning is
    about a part of a pool. A note is about a question without an answer.
    """

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """A contradiction between cluster.yaml and the account.

    `slug` is its stable name, for scripts.
    """

    slug: str
    severity: Severity
    key_path: KeyPath  # in cluster.yaml; empty for the whole account
    message: str


@dataclass(frozen=True, slots=True)
class LocatedFinding:
    """A finding with its place in the file; line 0 without one."""

    slug: str
    severity: Severity
    line: int
    path: str
    message: str

    @property
    def place(self) -> str:
        """Return the finding's text without severity and slug."""
        return str(Problem(self.line, self.path, self.message)) if self.line else self.message

    def __str__(self) -> str:
        return f"{self.severity}: {self.place} [{self.slug}]"


@dataclass(frozen=True, slots=True)
class Preflight:
    """The result of a preflight; errors come first, then the order of the file."""

    source: str
    account: str
    caller: str
    findings: tuple[LocatedFinding, ...]

    @property
    def errors(self) -> tuple[LocatedFinding, ...]:
        """Return the findings with which deploy would fail."""
        return tuple(item for item in self.findings if item.severity is Severity.ERROR)

    @property
    def ready(self) -> bool:
        """Return whether deploy may begin."""
        return not self.errors

    @property
    def sentence(self) -> str:
        """Return the result in one sentence."""
        verb = "is ready" if self.ready else "is not ready"
        account = f"account {self.account}" if self.account else "the account"
        caller = f", asked by {self.caller}" if self.caller else ""
        return f"{self.source}: {account} {verb}{caller}"

    def to_json(self) -> dict[str, Any]:
        """Return the result for `--json`."""
        return {"account": self.account, "caller": self.caller, "findings": self.findings}
