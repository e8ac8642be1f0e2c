"""The answers that capture.py kept, as a runner gives them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from slurmplugins.slurm import sacct
from slurmplugins.system.command import CommandResult

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
VERSIONS = ("24.11", "25.11", "26.05")


def asked_fields(help_text: str) -> tuple[str, ...]:
    """Return the fields of sacct that the captures have.

    Pages of their time have the same ones.
    """
    return tuple(name for name in sacct.fields(help_text) if name not in {"Eligible", "WCKey"})


class Recorded:
    """A runner that answers as one version of Slurm did.

    With `unreachable`, slurmctld was away.
    """

    def __init__(self, version: str, *, unreachable: bool = False) -> None:
        self.folder = HERE / version
        calls = json.loads(self.text("calls.json"))
        self._calls = {
            tuple(call["argv"]): (name, call)
            for name, call in calls.items()
            if name.startswith("unreachable-") is unreachable
        }
        self.jobs: dict[str, int] = json.loads(self.text("jobs.json"))

    def text(self, name: str) -> str:
        # newline="": a job's name has line breaks of its own.
        with (self.folder / name).open(encoding="utf-8", newline="") as file:
            return file.read()

    def run(self, argv: Sequence[str], *, timeout: float = 60, stdin: str = "") -> CommandResult:
        assert not stdin, "no recorded call has standard input"
        name, call = self._calls[Path(argv[0]).name, *argv[1:]]
        return CommandResult(call["exit"], self.text(name), call["stderr"])


class RecordedHead:
    """The same answers, as people's commands get them from the head node."""

    def __init__(self, version: str) -> None:
        self._recorded = Recorded(version)

    def run(self, argv: Sequence[str], *, timeout: float = 60) -> str:
        return self._recorded.run(argv).stdout
