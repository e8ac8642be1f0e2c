"""The calls of Slurm for a submission: partitions, accounts, a rehearsal, the job itself."""

from __future__ import annotations

import hashlib
import json
import subprocess
from functools import cached_property
from typing import TYPE_CHECKING

from toolkit.errors import HeadCommandFailed, ToolkitError
from toolkit.head_runner import TRAINING_PROGRAM, user_words
from toolkit.submit.errors import SlurmRefused
from toolkit.training.run_folder.stop_forecast import MeasuredForecast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.head_runner import Runner

TIMEOUT = 60.0
_ERROR = "sbatch: error: "


class LocalRunner:
    """Runs commands on this machine, which has sbatch."""

    def run(self, argv: Sequence[str], *, timeout: float = TIMEOUT) -> str:
        try:
            completed_process = subprocess.run(
                list(argv), capture_output=True, text=True, timeout=timeout, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SlurmRefused(f"{argv[0]}: {error}") from error
        if completed_process.returncode:
            raise SlurmRefused(_error_text(completed_process.stderr or completed_process.stdout))
        return completed_process.stdout


class UserRunner:
    """Runs commands on the head node as one of its users, in her home."""

    def __init__(self, runner: Runner, user: str) -> None:
        self._runner, self._user = runner, user

    @cached_property
    def _as_user(self) -> tuple[str, ...]:
        return user_words(self._runner, self._user)

    def run(self, argv: Sequence[str], *, timeout: float = TIMEOUT) -> str:
        try:
            return self._runner.run([*self._as_user, *argv], timeout=timeout)
        except HeadCommandFailed as error:
            if error.returncode <= 0:
                raise
            raise SlurmRefused(_error_text(error.stderr or error.stdout)) from error


class SlurmClient:
    """A client of Slurm. Every method raises SlurmRefused, or its runner's errors."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def read_script(self, script: str) -> str:
        """Return the script, read on the machine that will run sbatch."""
        return self._runner.run(["cat", "--", script], timeout=TIMEOUT)

    def folder_bytes(self, folder: str) -> int | None:
        """Return a folder's size; None where this host can't read it."""
        try:
            output = self._runner.run(
                ["du", "--summarize", "--bytes", "--", folder], timeout=TIMEOUT
            )
        except ToolkitError:
            return None
        size = output.split(maxsplit=1)[:1]
        return int(size[0]) if size and size[0].isdecimal() else None

    def partitions(self) -> tuple[str, ...]:
        output = self._runner.run(["sinfo", "--noheader", "--all", "--format=%R"], timeout=TIMEOUT)
        return tuple(dict.fromkeys(output.split()))

    def accounts(self, user: str) -> tuple[str, ...]:
        """Return the accounts that the user may charge."""
        argv = ["sacctmgr", "-n", "-P", "show", "assoc", f"user={user}", "format=account"]
        return tuple(dict.fromkeys(self._runner.run(argv, timeout=TIMEOUT).split()))

    def measured_stop(self, text: str, arguments: Sequence[str]) -> MeasuredForecast | None:
        """Return the stop time measured by the most similar earlier run.

        None if no run has one.
        """
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        argv = [*TRAINING_PROGRAM, "similar-run", f"--script-sha256={sha256}", "--", *arguments]
        try:
            output = self._runner.run(argv, timeout=TIMEOUT)
            record = json.loads(output)
        except (ToolkitError, ValueError):  # the library is missing or older: nothing is known
            return None
        return MeasuredForecast.parse(record) if isinstance(record, dict) else None

    def test_submission(self, argv: Sequence[str]) -> None:
        """Have Slurm check the job without submitting it.

        Raises SlurmRefused with its reason.
        """
        self._runner.run([argv[0], "--test-only", *argv[1:]], timeout=TIMEOUT)

    def submit(self, argv: Sequence[str]) -> str:
        """Submit the job and return its number."""
        answer = self._runner.run(argv, timeout=TIMEOUT).strip()
        number = answer.partition(";")[0]  # with several clusters, a name follows
        if not number.isdecimal():
            raise SlurmRefused(f"sbatch answered {answer[:200]!r}")
        return number

    def cancel(self, job: str) -> None:
        """Cancel a job that this client has submitted."""
        self._runner.run(["scancel", job], timeout=TIMEOUT)


def _error_text(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # sbatch tells the job's price on standard error too.
    errors = [line for line in lines if line.startswith(_ERROR)] or lines
    return "; ".join(line.removeprefix(_ERROR) for line in errors)[:400] or "no reason given"
