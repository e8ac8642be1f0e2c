"""Asks the head node for its facts: one command, the same on AWS and on the local cloud."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.head import report
from toolkit.errors import HeadCommandFailed

if TYPE_CHECKING:
    from slurmplugins.head.report import HeadReport
    from toolkit.head_runner import Runner

LIB: Final = "/opt/slurm-toolkit/lib"
BIN: Final = "/opt/slurm-toolkit/bin"

# As slurm, never as root: Slurm's own programs could not use a lock or a file that root made.
_AS_SLURM: Final = ("/usr/sbin/runuser", "-u", "slurm", "--")
_FACTS: Final = ("/usr/bin/env", f"PYTHONPATH={LIB}", "/usr/bin/python3", "-P", "-m")


def fetch_report(head: Runner, *question: str) -> HeadReport:
    """Return the head's report on `question`, slurmplugins.head_report's arguments.

    Raises HeadCommandFailed.
    """
    output = head.run([*_AS_SLURM, *_FACTS, "slurmplugins.head_report", *question], timeout=120)
    try:
        return report.from_json(json.loads(output))
    except ValueError as error:
        raise HeadCommandFailed(f"the head node's report can't be read: {error}") from error


def fetch_reconcile_plan(head: Runner) -> dict[str, Any]:
    """Return reconcile's next changes, as slurm-reconcile --plan prints them.

    Raises HeadCommandFailed.
    """
    output = head.run([*_AS_SLURM, f"{BIN}/slurm-reconcile", "--plan"], timeout=120)
    try:
        value = json.loads(output)
    except ValueError as error:
        raise HeadCommandFailed(f"reconcile's plan can't be read: {error}") from error
    if not isinstance(value, dict):
        raise HeadCommandFailed("reconcile's plan can't be read: not an object")
    return value
