"""Let dataset work of a job wait for its store, stop on request, and end with the right code."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from toolkit.datasets.errors import (
    CacheTooSmall,
    CacheUnusable,
    ContentCorrupt,
    DataError,
    DatasetUnknown,
    DataStopped,
    FolderFull,
    FolderTaken,
    ManifestInvalid,
    NameRefused,
    StoreBusy,
    StoreUnreachable,
    StoreUnset,
)
from toolkit.datasets.stop import write_verdict
from toolkit.training.attempt import verdict
from toolkit.training.attempt.attempt import RETRY_PAUSES, Attempt
from toolkit.training.attempt.stop_request import StopFiles
from toolkit.training.attempt.verdict import DO_NOT_REQUEUE, RESUME_ME

T = TypeVar("T")

# Errors that another attempt of the same job would meet again.
_PERMANENT_ERRORS = (
    CacheTooSmall,
    CacheUnusable,
    ContentCorrupt,
    DatasetUnknown,
    FolderFull,
    FolderTaken,
    ManifestInvalid,
    NameRefused,
    StoreUnset,
)
# Errors that may pass within a minute, or until the job is requeued.
_TRANSIENT_ERRORS = (StoreUnreachable, StoreBusy, OSError)
_MAX_REQUEUES = 5


class DataJob:
    """The dataset work of one attempt.

    Outside a job nothing is tried again.
    """

    def __init__(self, attempt: Attempt, sleep: Callable[[float], None] = time.sleep) -> None:
        self._attempt, self._sleep = attempt, sleep
        self._stop_files = StopFiles(attempt.stop_files, attempt.started_at)
        self._done_count = 0
        self.exit_code = 0

    def should_stop(self) -> bool:
        """Return whether a stop was requested."""
        return self._stop_files.poll()

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Turn the block's errors into a message, a verdict and `exit_code`."""
        try:
            yield
        except DataError as error:
            self.exit_code = self._report_failure(error)
        except OSError as error:
            self.exit_code = self._report_failure(
                StoreUnreachable(f"the store, the cache or the folder failed: {error}")
            )

    def run(self, title: str, work: Callable[[], T]) -> T:
        """Do the work; while its store is unreachable, retry after each pause.

        Raises DataStopped on a stop request.
        """
        remaining_pauses = iter(RETRY_PAUSES if self._in_job() else ())
        while not self.should_stop():
            try:
                result = work()
            except _TRANSIENT_ERRORS as error:
                if (pause := next(remaining_pauses, None)) is None:
                    raise
                log(f"{title}: next try in {pause} s: {error}")
            else:
                self._done_count += 1
                return result
            for _ in range(pause):
                if not self.should_stop():
                    self._sleep(1)
        raise DataStopped("a stop was requested")

    def _report_failure(self, error: DataError) -> int:
        """Print the error, write the batch script's verdict, return its exit code."""
        log_error(error)
        final_verdict, exit_code = self._verdict(error)
        with suppress(OSError):  # the exit code says the same
            write_verdict(self._attempt, final_verdict)
        return exit_code

    def _verdict(self, error: DataError) -> tuple[verdict.Verdict, int]:
        count = self._done_count
        may_requeue = self._in_job() and self._attempt.restart_count < _MAX_REQUEUES
        if isinstance(error, DataStopped):
            return self._stop_files.verdict(count, error.message), RESUME_ME
        if isinstance(error, _PERMANENT_ERRORS):
            return verdict.hold(count, error.reason, error.message), DO_NOT_REQUEUE
        if isinstance(error, _TRANSIENT_ERRORS) and may_requeue:
            return verdict.resume(count, error.reason, error.message), RESUME_ME
        return verdict.failed(count, f"{error.reason}: {error.message}"), 1

    def _in_job(self) -> bool:
        return self._attempt.job_id != "local"


def log_error(error: DataError) -> None:
    """Log what happened and what to do."""
    log(f"{error.message} [{error.reason}]" + (f"; {error.next_step}" if error.next_step else ""))


def log(text: str) -> None:
    """Print a line to the job's log.

    It has the name of this node.
    """
    sys.stderr.write(f"[toolkit] {os.uname().nodename}: {text}\n")
    sys.stderr.flush()
