"""Exits the training script during dataset work, with a verdict for the batch script."""

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
    """Yield a `stop` function; exit the script when work raises Stopped.

    The script exits by toolkit.training.Stopped, and the job is requeued. `with Run`
    need not have begun. The exit code is not 0, although it is 0 where all ranks exit
    together. Other ranks may wait for this one in a collective, and torchrun ends them
    when one fails.
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
    """Write the verdict for the batch script.

    Without a run folder no batch script reads one.
    """
    if attempt.run_dir.is_dir():
        word.write_first(attempt.verdict_file)
