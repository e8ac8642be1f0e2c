"""What became of an attempt, in a file: torchrun's own exit code is 1 whatever its workers say."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from toolkit.training.attempt.attempt import Attempt
from toolkit.training.io.durable_files import encode, find_json, write_atomic, write_first

Outcome = Literal["done", "resume", "hold", "failed"]

# slurm.conf has RequeueExit=85; 93 is also what NVIDIA's resiliency extension means by it.
RESUME_ME = 85
DO_NOT_REQUEUE = 93


@dataclass(frozen=True, slots=True)
class Verdict:
    """The last word of an attempt. The batch script exits with `exit_code`."""

    verdict: Outcome
    exit_code: int
    cause: str
    step: int  # steps done, that is the step the next attempt starts with
    detail: str = ""

    def write(self, path: Path) -> None:
        """Put the verdict in place of any earlier one."""
        write_atomic(path, encode(asdict(self)))

    def write_first(self, path: Path) -> bool:
        """Put the verdict in place unless one is there: the first rank to fail is heard."""
        return write_first(path, encode(asdict(self)))


def done(step: int) -> Verdict:
    """The training is finished."""
    return Verdict("done", 0, "finished", step)


def resume(step: int, cause: str, detail: str = "") -> Verdict:
    """Bring the job back: Slurm requeues it on this exit code."""
    return Verdict("resume", RESUME_ME, cause, step, detail)


def hold(step: int, cause: str, detail: str) -> Verdict:
    """Do not bring it back: another attempt would end the same way."""
    return Verdict("hold", DO_NOT_REQUEUE, cause, step, detail)


def failed(step: int, detail: str, exit_code: int = 1) -> Verdict:
    """The script itself failed; the code is its own, kept clear of the two that Slurm acts on."""
    code = exit_code if exit_code not in (0, RESUME_ME, DO_NOT_REQUEUE) else 1
    return Verdict("failed", code, "error", step, detail)


def read(path: Path) -> Verdict | None:
    """The verdict in `path`; None when the attempt ended without a word. OSError where that can't
    be found out.
    """
    found = find_json(path)
    try:
        return Verdict(**found) if found else None
    except TypeError:
        return None


def read_verdict(attempt: Attempt) -> Verdict | None:
    """What another rank has already said about this attempt, as far as it can be read."""
    try:
        return read(attempt.verdict_file)
    except OSError:
        return None
