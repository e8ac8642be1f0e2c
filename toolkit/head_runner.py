"""How a command reaches the head node, and the error for an answer that makes no sense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Runner(Protocol):
    """Runs one argv as root on the head node."""

    def run(self, argv: Sequence[str], *, timeout: float = 60) -> str:
        """Return standard output; raise `HeadCommandFailed` for any exit code but 0."""
        ...


class SlurmAnswerError(ToolkitError):
    """Slurm answered, and the answer isn't in a shape this version of the toolkit knows."""

    reason = "slurm-answer-unreadable"
