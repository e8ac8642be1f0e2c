"""How an attempt ends on one rank: the verdict, the books and what else is open, once."""

from collections.abc import Sequence
from pathlib import Path

from toolkit.training import cancelling, faults, gpus
from toolkit.training.attempt import Attempt
from toolkit.training.record import Books, read_verdict
from toolkit.training.termination import Terminated
from toolkit.training.tracking import Status
from toolkit.training.verdict import Verdict
from toolkit.training.world import World

# What may be spent on the tracking server at the end: little of a spot notice's 120 s.
_PATIENCE_STOP, _PATIENCE_END = 10.0, 30.0


class Closing:
    """What is to be closed, as it is opened: `books` on rank 0, a `sampler` on a rank a node."""

    def __init__(self, attempt: Attempt, world: World) -> None:
        self._attempt, self._world = attempt, world
        self.ended = False  # the verdict is written, or another rank's to write
        self.books: Books | None = None
        self.sampler: gpus.Sampler | None = None

    def finished(self, word: Verdict, result: Path) -> None:
        """The training is over."""
        self._close(word, "FINISHED", _PATIENCE_END, [result])

    def stopped(self, word: Verdict, status: Status | None = None) -> None:
        """All ranks leave here together; `status` where the run is over for now."""
        self._close(word, status, _PATIENCE_STOP)

    def failed(self, error: BaseException, saved_step: int) -> None:
        """This rank was ended by an exception, and maybe it alone."""
        word = faults.verdict_of(error, saved_step)
        if self._world.rank != 0:
            word.write_first(self._attempt.verdict_file)
            return
        word = read_verdict(self._attempt) or word
        killed = isinstance(error, Terminated) and cancelling.cancelled(self._attempt.job_id)
        status = self._attempt.failed if word.verdict == "failed" else None
        self._close(word, "KILLED" if killed else status, _PATIENCE_STOP)

    def _close(
        self, word: Verdict, status: Status | None, patience: float, artifacts: Sequence[Path] = ()
    ) -> None:
        self.ended = True
        if self.sampler:
            self.sampler.stop()
        if self.books:
            self.books.end(word, status=status, artifacts=artifacts, patience=patience)
