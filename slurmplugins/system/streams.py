"""Programs whose output or input is a compressed file, too large for memory."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import shutil
import subprocess
import tempfile
from typing import IO, TYPE_CHECKING, Final, Protocol, cast

from slurmplugins.system.command import BASE_ENVIRONMENT, NOT_RUN, CommandResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Process = subprocess.Popen[bytes]

LEVEL: Final = 6
_MAX_STDERR: Final = 2000


class Streams(Protocol):
    def save(self, argv: Sequence[str], path: Path) -> CommandResult:
        """Write the program's output to a new, private gzip file.

        Raises OSError when the file can't be written; a failed program is a `returncode`.
        """
        ...

    def feed(self, argv: Sequence[str], path: Path) -> CommandResult:
        """Give the content of a gzip file to the program.

        Raises OSError or EOFError when the file can't be read; a failed program is a `returncode`.
        """
        ...


class SystemStreams:
    """An implementation on processes of this machine. The work has no time limit."""

    def save(self, argv: Sequence[str], path: Path) -> CommandResult:
        def copy(process: Process) -> None:
            with private(path) as file, gzip.GzipFile("", "wb", LEVEL, file, 0) as packed:
                shutil.copyfileobj(cast("IO[bytes]", process.stdout), packed)

        return _run(argv, copy, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def feed(self, argv: Sequence[str], path: Path) -> CommandResult:
        def copy(process: Process) -> None:
            # A program that ended early says why.
            with contextlib.suppress(BrokenPipeError):
                shutil.copyfileobj(content, cast("IO[bytes]", process.stdin))

        with gzip.open(path) as content:
            return _run(argv, copy, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def _run(
    argv: Sequence[str], copy: Callable[[Process], None], *, stdin: int, stdout: int
) -> CommandResult:
    """Run a program while `copy` moves its data.

    The program is killed if that fails.
    """
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                list(argv), env=BASE_ENVIRONMENT, stdin=stdin, stdout=stdout, stderr=errors
            )
        except OSError as error:
            return CommandResult(NOT_RUN, "", str(error))
        with process:
            try:
                copy(process)
            except BaseException:
                process.kill()
                raise
        return CommandResult(process.returncode, "", _text(errors))


def private(path: Path) -> IO[bytes]:
    """Open a new file that its owner alone reads.

    Raises OSError if there is one.
    """
    path.touch(mode=0o600, exist_ok=False)
    return path.open("wb")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(errors: IO[bytes]) -> str:
    errors.seek(0)
    return errors.read().decode(errors="replace")[-_MAX_STDERR:]
