"""What submitting asks of Slurm: partitions, accounts, a rehearsal, and the job itself."""

from __future__ import annotations

import hashlib
import json
import subprocess
from typing import TYPE_CHECKING

from toolkit.errors import HeadCommandFailed, ToolkitError
from toolkit.submit.errors import SlurmRefused
from toolkit.training.run_folder.stop_forecast import Measured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.head_runner import Runner

TIMEOUT = 60.0
PYTHON = "/shared/env/bin/python"
LIBRARY = "/shared/lib"


class Here:
    """Runs commands on this machine, where sbatch is."""

    def run(self, argv: Sequence[str], *, timeout: float = TIMEOUT) -> str:
        try:
            done = subprocess.run(
                list(argv), capture_output=True, text=True, timeout=timeout, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SlurmRefused(f"{argv[0]}: {error}") from error
        if done.returncode:
            raise SlurmRefused(_said(done.stderr or done.stdout))
        return done.stdout


class AsUser:
    """Runs commands on the head as one of its people."""

    def __init__(self, runner: Runner, user: str) -> None:
        self._runner, self._user = runner, user

    def run(self, argv: Sequence[str], *, timeout: float = TIMEOUT) -> str:
        try:
            return self._runner.run(["runuser", "-u", self._user, "--", *argv], timeout=timeout)
        except HeadCommandFailed as error:
            if error.returncode <= 0:
                raise
            raise SlurmRefused(_said(error.stderr or error.stdout)) from error


class SlurmSide:
    """Every method raises SlurmRefused, or what its runner raises."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def text(self, script: str) -> str:
        """The script as the machine has it that will run sbatch."""
        return self._runner.run(["cat", "--", script], timeout=TIMEOUT)

    def partitions(self) -> tuple[str, ...]:
        found = self._runner.run(["sinfo", "--noheader", "--all", "--format=%R"], timeout=TIMEOUT)
        return tuple(dict.fromkeys(found.split()))

    def accounts(self, user: str) -> tuple[str, ...]:
        """The accounts that the user may charge."""
        argv = ["sacctmgr", "-n", "-P", "show", "assoc", f"user={user}", "format=account"]
        return tuple(dict.fromkeys(self._runner.run(argv, timeout=TIMEOUT).split()))

    def measured(self, text: str, arguments: Sequence[str]) -> Measured | None:
        """What the earlier run most like this one found a stop to take; None where none tells."""
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        program = ["env", f"PYTHONPATH={LIBRARY}", PYTHON, "-m", "toolkit.training", "similar-run"]
        try:
            said = self._runner.run(
                [*program, f"--script-sha256={sha256}", "--", *arguments], timeout=TIMEOUT
            )
            found = json.loads(said)
        except (ToolkitError, ValueError):  # no library there, or an older one: nothing is known
            return None
        return Measured.parse(found) if isinstance(found, dict) else None

    def rehearse(self, argv: Sequence[str]) -> None:
        """Have Slurm check the job without taking it; raises SlurmRefused with its reason."""
        self._runner.run([argv[0], "--test-only", *argv[1:]], timeout=TIMEOUT)

    def submit(self, argv: Sequence[str]) -> str:
        """The job's number."""
        answer = self._runner.run(argv, timeout=TIMEOUT).strip()
        number = answer.partition(";")[0]  # of several clusters it names the one
        if not number.isdecimal():
            raise SlurmRefused(f"sbatch answered {answer[:200]!r}")
        return number


def _said(text: str) -> str:
    lines = [line.removeprefix("sbatch: error: ").strip() for line in text.splitlines()]
    return "; ".join(line for line in lines if line)[:400] or "no reason given"
