"""Leaving because of datasets, so that the batch script knows what to make of it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from toolkit.datasets.errors import Stopped
from toolkit.training.attempt import stop_request
from toolkit.training.attempt.attempt import Attempt, current
from toolkit.training.attempt.stop_request import StopFiles
from toolkit.training.attempt.verdict import Verdict
from toolkit.training.run_folder import checkpoint_names
from toolkit.training.run_folder.run_folder import RunDir


@contextmanager
def leaving_when_asked() -> Iterator[Callable[[], bool]]:
    """Yields the `stop` for what may take long; the script leaves where that raises Stopped.

    It leaves by toolkit.training.Stopped, to come back: `with Run` need not have begun. The exit
    code is not 0, as it is where all ranks leave together: others may wait for this one in a
    collective, and torchrun ends those when one fails.
    """
    attempt = current()
    files = StopFiles(attempt.stop_files, attempt.started_at)
    try:
        yield files.poll
    except Stopped as error:
        saved = checkpoint_names.last_step(RunDir(attempt.run_dir).checkpoints)
        word = files.word(saved or 0, error.message)
        leave(attempt, word)
        sys.stderr.write(f"[toolkit] leaving, to come back: {word.cause}: {word.detail}\n")
        raise stop_request.Stopped(word, code=word.exit_code) from error


def leave(attempt: Attempt, word: Verdict) -> None:
    """Put the verdict where the batch script looks for it; without a run folder nobody does."""
    if attempt.run_dir.is_dir():
        word.write_first(attempt.verdict_file)
