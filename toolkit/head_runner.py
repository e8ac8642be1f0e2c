"""The protocol of running commands on the head node, and the error for unknown answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    from collections.abc import Sequence

TRAINING_PROGRAM: Final = (
    *("env", "PYTHONPATH=/shared/lib"),
    *("/shared/env/bin/python", "-m", "toolkit.training"),
)
"""The call of `toolkit.training` in the environment of jobs; a subcommand follows."""


class Runner(Protocol):
    """A way to run commands as root on the head node."""

    def run(self, argv: Sequence[str], *, timeout: float = 60) -> str:
        """Run one argv and return its standard output.

        Raises `HeadCommandFailed` for any exit code but 0.
        """
        ...


class SlurmAnswerError(ToolkitError):
    """Slurm answered in a shape that this version of the toolkit does not know."""

    reason = "slurm-answer-unreadable"
