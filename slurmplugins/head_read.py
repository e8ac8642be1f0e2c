"""Run one command that reads: `slurm-read WORD`, behind the SSM document for readers.

WORD is the encoded argv. A command that is not in the list of `head.read_commands` is refused.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BadName
from slurmplugins.head import read_commands

if TYPE_CHECKING:
    from collections.abc import Sequence

ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "HOME": "/root",
}


def command_of(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the argv to run.

    Raises SystemExit for all that is no reader's command.
    """
    if len(arguments) != 1:
        raise SystemExit("usage: slurm-read WORD")
    try:
        return read_commands.decode(arguments[0])
    except BadName as error:
        raise SystemExit(f"slurm-read: {error}") from error


def main() -> None:
    argv = command_of(sys.argv[1:])
    os.execvpe(argv[0], argv, ENVIRONMENT)  # noqa: S606 - argv, no shell


if __name__ == "__main__":
    main()
