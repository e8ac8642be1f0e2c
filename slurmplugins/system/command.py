"""Calls of other programs: argv only, absolute paths, a time limit, a clean environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMED_OUT: Final = 124
"""Return code of a command that exceeded its time limit, as in timeout(1)."""

NOT_RUN: Final = 127
"""Return code of a command that could not be started, as in a shell."""

BASE_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_INHERITED_VARIABLES: Final = ("SLURM_CONF",)


@dataclass(frozen=True, slots=True)
class CommandResult:
    returncode: int
    stdout: str
    stderr: str


class Runner(Protocol):
    def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        """Run the command to its end and return its output.

        Raises nothing when the command fails: see `returncode`.
        """
        ...


class SystemRunner:
    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        source = os.environ if environment is None else environment
        inherited = {key: source[key] for key in _INHERITED_VARIABLES if key in source}
        self._environment = {**BASE_ENVIRONMENT, **inherited}

    def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        import subprocess

        try:
            process = subprocess.run(
                list(argv),
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                env=self._environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return CommandResult(TIMED_OUT, "", f"{argv[0]} took longer than {timeout:g} s")
        except (OSError, ValueError) as error:  # also an argument with a null byte
            return CommandResult(NOT_RUN, "", str(error))
        return CommandResult(process.returncode, process.stdout, process.stderr)


class OutputStream:
    """A program that runs on, and whose output is read as it comes."""

    def __init__(self, argv: Sequence[str]) -> None:
        """Start the program. One that can't be started has ended, without output."""
        import subprocess

        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=BASE_ENVIRONMENT,
            )
        except OSError:
            return
        if self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)

    def read(self, most_bytes: int) -> bytes:
        """Return what the program has written, without waiting for more."""
        if self._process is None or self._process.stdout is None:
            return b""
        try:
            return os.read(self._process.stdout.fileno(), most_bytes)
        except BlockingIOError:
            return b""

    def has_ended(self) -> bool:
        """Return whether the program is no longer there."""
        return self._process is None or self._process.poll() is not None

    def close(self) -> None:
        """End the program."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
