"""The common parts of every program: its own log, and its exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from slurmplugins.config import paths
from slurmplugins.system import decision_log, logger as log
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmplugins.system.logger import Log


def open_log(program: str) -> Log:
    """Return a log that writes to the program's own file.

    Under systemd it writes to standard error too.
    """
    to_file = log.to_file(paths.LOGS / f"{program}.log")
    under_systemd = "INVOCATION_ID" in os.environ

    def write_to_both(line: str) -> None:
        log.to_stderr(line)
        if paths.LOGS.is_dir():
            to_file(line)

    write = decision_log.copying_writer(
        paths.DECISIONS, write_to_both if under_systemd else to_file
    )
    return log.Log(write, SystemClock(), {"program": program, "pid": os.getpid()})


def run_to_exit_code(logger: Log, work: Callable[[], None]) -> int:
    """Run the program and return its exit code.

    Returns 0, or 1 with the error in the log and on standard error. Raises nothing.
    """
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the last handler before the process ends
        import traceback

        logger.failure(
            LogEvent.PROGRAM_FAILED,
            error=f"{type(error).__name__}: {error}",
            slug=getattr(error, "reason_code", "state" if isinstance(error, OSError) else "bug"),
            trace=traceback.format_exc()[-2000:],
        )
        if sys.stderr is not None:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0
