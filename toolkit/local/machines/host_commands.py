"""Commands on the host: argv in, bytes out, an error that says what to try."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Protocol

from toolkit.local.machines.driver import CommandResult
from toolkit.local.machines.errors import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIMED_OUT = 124  # what timeout(1) returns
_ERROR_LIMIT = 2000  # bytes of an error message worth showing
_POLL = 1.0  # seconds


class Host(Protocol):
    """The host's command line, as the machines need it."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 30,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run to the end or to the timeout (returncode 124).

        Never raises for an exit code.
        """


class RealHost:
    """Runs commands for real, each in a process group of its own."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = 30,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a command, collecting its output in files.

        A background child that holds a pipe must not hang the caller.
        """
        with (
            tempfile.TemporaryFile() as source,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            source.write(stdin)
            source.seek(0)
            try:
                process = subprocess.Popen(
                    list(argv),
                    stdin=source,
                    stdout=out,
                    stderr=err,
                    env=env,
                    start_new_session=True,
                )
            except FileNotFoundError:
                return CommandResult(127, b"", f"{argv[0]}: not installed".encode())
            returncode = _wait(process, timeout)
            out.seek(0)
            err.seek(0)
            return CommandResult(returncode, out.read(), err.read())


def _wait(process: subprocess.Popen[bytes], timeout: float) -> int:
    """Return the exit code, or TIMED_OUT once the whole group was killed.

    nsenter stops itself when its child is stopped, and systemd stops everything in a machine for a
    moment before it shuts down. What it wakes afterwards is in the machine alone.
    """
    deadline = time.monotonic() + timeout
    try:
        while (remaining_seconds := deadline - time.monotonic()) > 0:
            try:
                return process.wait(min(remaining_seconds, _POLL))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGCONT)
    except BaseException:  # a KeyboardInterrupt must not leave the child behind
        _kill(process)
        raise
    _kill(process)
    return TIMED_OUT


def _kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_checked(
    host: Host, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30
) -> bytes:
    """Run a command and return its output.

    Raises CommandFailed if it did not succeed.
    """
    result = host.run(argv, stdin=stdin, timeout=timeout)
    if result.returncode != 0:
        error_text = result.stderr[-_ERROR_LIMIT:].decode(errors="replace").strip()
        raise CommandFailed(f"{shlex.join(argv)} ended with {result.returncode}: {error_text}")
    return result.stdout
