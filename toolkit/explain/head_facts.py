"""Asks the head node for its facts: one command, the same on AWS and on the local cloud."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.head import report
from toolkit.errors import HeadCommandFailed

if TYPE_CHECKING:
    from slurmplugins.head.report import HeadReport
    from toolkit.head_runner import Runner

LIB: Final = "/opt/slurm-toolkit/lib"
BIN: Final = "/opt/slurm-toolkit/bin"


@dataclass(frozen=True, slots=True)
class HeadPrograms:
    """The user and the Python of our programs where slurmctld runs."""

    user: str = "slurm"
    python: str = "/usr/bin/python3"

    @property
    def as_user(self) -> tuple[str, ...]:
        """Return the argv before a program that runs as SlurmUser.

        Never as root: Slurm's own programs could not use a lock or a file that root made.
        """
        return ("/usr/sbin/runuser", "-u", self.user, "--")

    @property
    def module(self) -> tuple[str, ...]:
        """Return the argv before the name of one of our modules."""
        return (*self.as_user, "/usr/bin/env", f"PYTHONPATH={LIB}", self.python, "-P", "-m")


_OF_A_HEAD: Final = HeadPrograms()


def fetch_report(head: Runner, *question: str, programs: HeadPrograms = _OF_A_HEAD) -> HeadReport:
    """Return the head's report on `question`, slurmplugins.head_report's arguments.

    Raises HeadCommandFailed.
    """
    output = head.run([*programs.module, "slurmplugins.head_report", *question], timeout=120)
    try:
        return report.from_json(json.loads(output))
    except ValueError as error:
        raise HeadCommandFailed(f"the head node's report can't be read: {error}") from error


def fetch_reconcile_plan(head: Runner, *, programs: HeadPrograms = _OF_A_HEAD) -> dict[str, Any]:
    """Return reconcile's next changes, as slurm-reconcile --plan prints them.

    Raises HeadCommandFailed.
    """
    output = head.run([*programs.as_user, f"{BIN}/slurm-reconcile", "--plan"], timeout=120)
    try:
        value = json.loads(output)
    except ValueError as error:
        raise HeadCommandFailed(f"reconcile's plan can't be read: {error}") from error
    if not isinstance(value, dict):
        raise HeadCommandFailed("reconcile's plan can't be read: not an object")
    return value
