"""Exits the training script during dataset work, with a verdict for the batch script."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from toolkit.datasets.errors import DataStopped
from toolkit.training.attempt import stop_request
from toolkit.training.attempt.attempt import Attempt, current
from toolkit.training.attempt.stop_request import StopFiles
from toolkit.training.attempt.verdict import Verdict
from toolkit.training.run_folder import checkpoint_names
from toolkit.training.run_folder.run_folder import RunFolder


@contextmanager
def exit_on_stop_request() -> Iterator[Callable[[], bool]]:
    """Yield a `should_stop` function; exit the script on DataStopped.

    The script exits by toolkit.training.Stopped, and the job is requeued. `with Run`
    need not have begun. The exit code is not 0, although it is 0 where all ranks exit
    together. Other ranks may wait for this one in a collective, and torchrun ends them
    when one fails.
    """
    attempt = current()
    stop_files = StopFiles(attempt.stop_files, attempt.started_at)
    try:
        yield stop_files.poll
    except DataStopped as error:
        last_step = checkpoint_names.last_step(RunFolder(attempt.run_dir).checkpoints)
        verdict = stop_files.verdict(last_step or 0, error.message)
        write_verdict(attempt, verdict)
        sys.stderr.write(f"[toolkit] stopping, to be requeued: {verdict.cause}: {verdict.detail}\n")
        raise stop_request.Stopped(verdict, code=verdict.exit_code) from error


def write_verdict(attempt: Attempt, verdict: Verdict) -> None:
    """Write the verdict for the batch script.

    Without a run folder no batch script reads one.
    """
    if attempt.run_dir.is_dir():
        verdict.write_first(attempt.verdict_file)
