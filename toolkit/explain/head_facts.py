"""Asks the head for its facts: one command, the same on AWS and on the local cloud."""

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

# As slurm, never as root: a lock or a file that root made, slurm's own programs could not use.
_AS_SLURM: Final = ("/usr/sbin/runuser", "-u", "slurm", "--")
_FACTS: Final = ("/usr/bin/env", f"PYTHONPATH={LIB}", "/usr/bin/python3", "-P", "-m")


def ask(head: Runner, *question: str) -> HeadReport:
    """The head's report; `question` is what slurmplugins.head_report takes. HeadCommandFailed."""
    said = head.run([*_AS_SLURM, *_FACTS, "slurmplugins.head_report", *question], timeout=120)
    try:
        return report.from_json(json.loads(said))
    except ValueError as error:
        raise HeadCommandFailed(f"the head's facts can't be read: {error}") from error


def plan(head: Runner) -> dict[str, Any]:
    """What reconcile would do now, as slurm-reconcile --plan prints it."""
    said = head.run([*_AS_SLURM, f"{BIN}/slurm-reconcile", "--plan"], timeout=120)
    try:
        found = json.loads(said)
    except ValueError as error:
        raise HeadCommandFailed(f"the plan can't be read: {error}") from error
    if not isinstance(found, dict):
        raise HeadCommandFailed("the plan can't be read: not an object")
    return found
