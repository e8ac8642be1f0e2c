"""How an attempt ends on one rank: the verdict, the books and what else is open, once."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.training.attempt import exception_verdict
from toolkit.training.attempt.attempt import Attempt
from toolkit.training.attempt.sigterm import Terminated
from toolkit.training.attempt.verdict import Verdict, read_verdict
from toolkit.training.distributed.process_group import World
from toolkit.training.recording.recorder import RankBooks
from toolkit.training.slurm import job
from toolkit.training.tracking.tracker import Status

if TYPE_CHECKING:
    from toolkit.training.recording import gpu_sampler

# What may be spent on the tracking server at the end: little of a spot notice's 120 s.
_PATIENCE_STOP, _PATIENCE_END = 10.0, 30.0

_had: set[tuple[Path, int]] = set()  # what runs this process has had, as which rank


def refuse_second(attempt: Attempt, rank: int) -> None:
    """Raise RuntimeError where this process has had a run of this attempt.

    Another would load the first one's last checkpoint, train nothing and give its results as its
    own. What the attempt came to is then no success, whatever the first one said.
    """
    run = (attempt.verdict_file, rank)
    if run not in _had:
        _had.add(run)
        return
    error = RuntimeError(
        f"a second Run in {attempt.run_dir} by one process: it would go on where the first one"
        " ended. A run folder is one training; several are several jobs, such as an array's tasks,"
        " or, outside the jobscripts, a TOOLKIT_RUN_DIR each"
    )
    if rank == 0 and (word := read_verdict(attempt)) and word.verdict == "done":
        exception_verdict.verdict_of(error, word.step).write(attempt.verdict_file)
    raise error


class Closing:
    """Also of the `sampler` of GPUs that one rank a node has."""

    def __init__(self, attempt: Attempt, world: World, noted: RankBooks) -> None:
        self._attempt, self._world, self._noted = attempt, world, noted
        self.ended = False  # the verdict is written, or another rank's to write
        self.sampler: gpu_sampler.Sampler | None = None

    def finished(self, word: Verdict, result: Path) -> None:
        """The training is over."""
        self._close(word, "FINISHED", _PATIENCE_END, [result])

    def stopped(self, word: Verdict, status: Status | None = None) -> None:
        """All ranks leave here together; `status` where the run is over for now."""
        self._close(word, status, _PATIENCE_STOP)

    def failed(self, error: BaseException, saved_step: int) -> None:
        """This rank was ended by an exception, and maybe it alone."""
        word = exception_verdict.verdict_of(error, saved_step)
        if self._world.rank != 0:
            with suppress(OSError):  # the error itself says more
                word.write_first(self._attempt.verdict_file)
            return
        word = read_verdict(self._attempt) or word
        killed = isinstance(error, Terminated) and job.cancelled(self._attempt.job_id)
        status = self._attempt.failed if word.verdict == "failed" else None
        self._close(word, "KILLED" if killed else status, _PATIENCE_STOP)

    def _close(
        self, word: Verdict, status: Status | None, patience: float, artifacts: Sequence[Path] = ()
    ) -> None:
        self.ended = True
        if self.sampler:
            self.sampler.stop()
        if self._noted.books:
            self._noted.books.end(word, status=status, artifacts=artifacts, patience=patience)
