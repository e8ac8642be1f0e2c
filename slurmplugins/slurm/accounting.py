"""slurmdbd's attempts as the head reads them: one sacct at a time, each with a time limit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from slurmplugins.errors import SlurmRefused
from slurmplugins.slurm import sacct
from slurmplugins.slurm.json_parser import failure
from slurmplugins.system.command import TIMED_OUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.system.command import CommandResult, Runner

SACCT_SECONDS: Final = 60.0
"""Seconds of one sacct: about two million attempts. A window that needs longer is halved."""
SHORT_SECONDS: Final = 30.0
JOBS_AT_ONCE: Final = 500
"""Job ids in one call."""
_KEPT_ROWS: Final = re.compile(r"^DBD Agent queue size:\s*(\d+)\s*$", re.ASCII | re.MULTILINE)
_VERSION: Final = re.compile(r"\d+\.\d+(\.\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of one sacct, and what is needed to cut it."""

    text: str
    names: tuple[str, ...]
    token: str

    def rows(self) -> list[dict[str, str]]:
        """Return its rows. Raises SlurmRefused for a text that is incomplete."""
        return sacct.rows(self.text, self.names, self.token)


class Accounting(Protocol):
    """The part of Slurm that records need. Each method raises SlurmError but `is_settled`."""

    def version(self) -> str:
        """Return Slurm's release."""
        ...

    def is_settled(self) -> bool:
        """Return whether slurmctld keeps no row that slurmdbd lacks."""
        ...

    def window(self, since: int, until: int) -> Answer | None:
        """Return the attempts of a window.

        None: that is too much for one call.
        """
        ...

    def jobs(self, jobs: Sequence[str], until: int) -> list[Answer]:
        """Return all attempts of these jobs."""
        ...

    def instances(self, cluster: str, since: int) -> str:
        """Return what `sacctmgr show instance` prints of those that began since then."""
        ...


class SlurmAccounting:
    """An implementation on Slurm's programs."""

    def __init__(self, runner: Runner, bin_dir: str) -> None:
        self._runner = runner
        self._bin = bin_dir
        self._names: tuple[str, ...] = ()

    def version(self) -> str:
        match = _VERSION.search(self._text([f"{self._bin}/sacct", "--version"]))
        return match[0] if match else ""

    def is_settled(self) -> bool:
        result = self._runner.run([f"{self._bin}/sdiag"], timeout=SHORT_SECONDS)
        match = _KEPT_ROWS.search(result.stdout)
        return result.returncode == 0 and match is not None and int(match[1]) == 0

    def window(self, since: int, until: int) -> Answer | None:
        token = sacct.new_token()
        argv = sacct.argv(self._fields(), since, until, token, f"{self._bin}/sacct")
        result = self._runner.run(argv, timeout=SACCT_SECONDS)
        # A signal is the kernel's, as the unit has little memory.
        if result.returncode == TIMED_OUT or result.returncode < 0:
            return None
        return self._answer(argv, result, token)

    def jobs(self, jobs: Sequence[str], until: int) -> list[Answer]:
        answers = []
        for start in range(0, len(jobs), JOBS_AT_ONCE):
            token = sacct.new_token()
            argv = sacct.argv(self._fields(), 0, until, token, f"{self._bin}/sacct")
            argv.append(f"--jobs={','.join(jobs[start : start + JOBS_AT_ONCE])}")
            result = self._runner.run(argv, timeout=SACCT_SECONDS)
            answers.append(self._answer(argv, result, token))
        return answers

    def instances(self, cluster: str, since: int) -> str:
        argv = sacct.instances_argv(cluster, since, f"{self._bin}/sacctmgr")
        result = self._runner.run(argv, timeout=SACCT_SECONDS)
        if result.returncode:
            raise failure(argv, result)
        return result.stdout

    def _answer(self, argv: Sequence[str], result: CommandResult, token: str) -> Answer:
        if result.returncode:
            raise failure(argv, result)
        return Answer(result.stdout, self._fields(), token)

    def _fields(self) -> tuple[str, ...]:
        if not self._names:
            argv = [*sacct.ENVIRONMENT, f"{self._bin}/sacct", "--helpformat"]
            self._names = sacct.fields(self._text(argv))
        return self._names

    def _text(self, argv: list[str]) -> str:
        result = self._runner.run(argv, timeout=SHORT_SECONDS)
        if result.returncode:
            raise failure(argv, result)
        if not result.stdout.strip():
            raise SlurmRefused(f"{argv[-2]} {argv[-1]} printed nothing")
        return result.stdout
