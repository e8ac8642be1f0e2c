"""Programs whose output or input is a compressed file, too large for memory."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import tempfile
from typing import IO, TYPE_CHECKING, Final, Protocol, cast

from slurmplugins.system.command import BASE_ENVIRONMENT, NOT_RUN, CommandResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(
                    list(argv), env=BASE_ENVIRONMENT, stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=errors,
                )  # fmt: skip
            except OSError as error:
                return CommandResult(NOT_RUN, "", str(error))
            with process:
                try:
                    with private(path) as file, gzip.GzipFile("", "wb", LEVEL, file, 0) as packed:
                        shutil.copyfileobj(cast("IO[bytes]", process.stdout), packed)
                except BaseException:
                    process.kill()
                    raise
            return CommandResult(process.returncode, "", _text(errors))

    def feed(self, argv: Sequence[str], path: Path) -> CommandResult:
        with tempfile.TemporaryFile() as errors, gzip.open(path) as content:
            try:
                process = subprocess.Popen(
                    list(argv), env=BASE_ENVIRONMENT, stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL, stderr=errors,
                )  # fmt: skip
            except OSError as error:
                return CommandResult(NOT_RUN, "", str(error))
            with process:
                try:
                    shutil.copyfileobj(content, cast("IO[bytes]", process.stdin))
                except BrokenPipeError:
                    pass  # the program ended early, and says why
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
