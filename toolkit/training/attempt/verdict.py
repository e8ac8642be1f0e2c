"""Write and read the verdict of an attempt.

A file is needed: torchrun's own exit code is 1, whatever code its workers exit with.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from toolkit.training.attempt.attempt import Attempt
from toolkit.training.io.durable_files import encode_line, load_json, write_atomic, write_first

Outcome = Literal["done", "resume", "hold", "failed"]

# slurm.conf has RequeueExit=85. NVIDIA's resiliency extension uses 93 with the same meaning.
RESUME_ME = 85
DO_NOT_REQUEUE = 93


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an attempt, as the attempt states it itself.

    The batch script exits with `exit_code`.
    """

    verdict: Outcome
    exit_code: int
    cause: str
    step: int  # number of steps done; the next attempt starts with this step
    detail: str = ""

    def write(self, path: Path) -> None:
        """Write the verdict, in place of any earlier one."""
        write_atomic(path, encode_line(asdict(self)))

    def write_first(self, path: Path) -> bool:
        """Write the verdict unless another rank has written one.

        Returns whether this one was written: the first rank to fail is heard.
        """
        return write_first(path, encode_line(asdict(self)))


def done(step: int) -> Verdict:
    """Return the verdict of a finished training."""
    return Verdict("done", 0, "finished", step)


def resume(step: int, cause: str, detail: str = "") -> Verdict:
    """Return the verdict on whose exit code Slurm requeues the job."""
    return Verdict("resume", RESUME_ME, cause, step, detail)


def hold(step: int, cause: str, detail: str) -> Verdict:
    """Return the verdict that holds the job.

    Another attempt would end in the same way.
    """
    return Verdict("hold", DO_NOT_REQUEUE, cause, step, detail)


def failed(step: int, detail: str, exit_code: int = 1) -> Verdict:
    """Return the verdict of a script that failed.

    The exit code is the script's own, unless it is 0 or one of the two codes that Slurm acts on:
    then 1.
    """
    code = exit_code if exit_code not in (0, RESUME_ME, DO_NOT_REQUEUE) else 1
    return Verdict("failed", code, "error", step, detail)


def read(path: Path) -> Verdict | None:
    """Return the verdict in `path`, or None when the attempt left none.

    Raises OSError when the file can't be read now.
    """
    fields = load_json(path)
    try:
        return Verdict(**fields) if fields else None
    except TypeError:
        return None


def read_verdict(attempt: Attempt) -> Verdict | None:
    """Return the verdict that another rank has written about this attempt.

    None when there is none, or when it can't be read.
    """
    try:
        return read(attempt.verdict_file)
    except OSError:
        return None
