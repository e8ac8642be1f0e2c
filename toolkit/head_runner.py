"""The protocol of running commands on the head node, as root or as a user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from toolkit.errors import HeadCommandFailed, ToolkitError

if TYPE_CHECKING:
    from collections.abc import Sequence

TRAINING_PROGRAM: Final = (
    *("env", "PYTHONPATH=/shared/lib"),
    *("/shared/env/bin/python", "-m", "toolkit.training"),
)
"""The call of `toolkit.training` in the environment of jobs; a subcommand follows."""


_GETENT_UNKNOWN: Final = 2


class Runner(Protocol):
    """A way to run commands as root on the head node."""

    def run(self, argv: Sequence[str], *, timeout: float = 60) -> str:
        """Run one argv and return its standard output.

        Raises `HeadCommandFailed` for any exit code but 0.
        """
        ...


def user_words(runner: Runner, user: str) -> tuple[str, ...]:
    """Return the words before a user's command, which runs in her home.

    None of root's variables get into it, so a job that it submits has none of them either. Raises
    UnknownUserError.
    """
    home = _home(runner, user)
    return (
        *("runuser", "-u", user, "--", "env", "-i", f"--chdir={home}"),
        *("PATH=/usr/local/bin:/usr/bin:/bin", f"HOME={home}", f"USER={user}"),
    )


def _home(runner: Runner, user: str) -> str:
    try:
        entry = runner.run(["getent", "passwd", "--", user]).strip().split(":")
    except HeadCommandFailed as error:
        if error.returncode != _GETENT_UNKNOWN:
            raise
        entry = []
    if len(entry) != len(("name", "password", "uid", "gid", "gecos", "home", "shell")):
        raise UnknownUserError(
            f"{user} is no user of the cluster",
            next_step="name a user of cluster.yaml; `toolkit apply` adds new ones",
        )
    return entry[5]


class UnknownUserError(ToolkitError):
    """A command was to run as a user whom the head node does not know."""

    reason = "user-unknown"


class SlurmAnswerError(ToolkitError):
    """Slurm answered in a shape that this version of the toolkit does not know."""

    reason = "slurm-answer-unreadable"
