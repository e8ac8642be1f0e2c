"""Write the prices that sbatch tells a user; a systemd timer starts this program as slurm.

Where cluster.yaml turns the line off, the file is removed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmplugins.cloud.client import client
from slurmplugins.cloud.spot_history import spot_prices
from slurmplugins.config import burst, paths, submit_line
from slurmplugins.errors import EngineError
from slurmplugins.head import price_file, submit_history
from slurmplugins.head.sacct_windows import MOST_CHARACTERS
from slurmplugins.head.submit_history import SubmitHistory
from slurmplugins.reconciler.pass_state import PassState
from slurmplugins.slurm.accounting import SlurmAccounting
from slurmplugins.system import program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner
from slurmplugins.system.files import write_atomically
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.slurm.accounting import Accounting
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything that a pass reads and writes."""

    burst_file: Path
    prices_file: Path
    state: Path
    connect: Callable[[], object]
    accounting: Accounting
    clock: Clock
    log: Log


def main() -> None:
    """Run the program and exit with 0 or 1."""
    log = program.open_log("prices")

    def work() -> None:
        config = burst.load(paths.BURST)

        def connect() -> object:
            return client("ec2", config.region, config.endpoint_url)

        parts = Parts(
            burst_file=paths.BURST,
            prices_file=paths.PRICES_FOR_SUBMIT,
            state=paths.STATE,
            connect=connect,
            accounting=SlurmAccounting(SystemRunner(), config.slurm_bin),
            clock=SystemClock(),
            log=log,
        )
        if write(parts):
            log.info(LogEvent.PRICES_WRITTEN)

    sys.exit(program.run_to_exit_code(log, work))


def write(parts: Parts) -> bool:
    """Write the file; return False where the line is off.

    Raises CloudError, ConfigError or OSError. The old file stays then, with its age.
    """
    config, part = burst.load(parts.burst_file), submit_line.load(parts.burst_file)
    if part is None:
        parts.prices_file.unlink(missing_ok=True)
        return False
    now = int(parts.clock.now())
    types = price_file.spot_types(config)
    points = spot_prices(parts.connect, parts.clock, types, now, now + 1) if types else []
    content = price_file.document(
        config,
        part,
        price_file.current_prices(points),
        price_file.read_remaining(parts.state, now),
        now,
        history=history(parts, now),
    )
    write_atomically(parts.prices_file, content, mode=0o644)
    return True


def history(parts: Parts, now: int) -> SubmitHistory:
    """Return the waits and interruptions up to now, and remember them.

    Where they can't be read, the old ones are told. A time with more attempts than sacct reads at
    once, or than this program's memory holds, is left out.
    """
    known = SubmitHistory.load(parts.state)
    since, until = submit_history.window(known, now)
    if since >= until:
        return known
    try:
        answer = parts.accounting.window(since, until)
        is_too_much = answer is None or len(answer.text) > MOST_CHARACTERS
        rows = [] if answer is None or is_too_much else answer.rows()
        ledger = PassState.load(parts.state).ledger.values()
        known = submit_history.updated(known, rows, ledger, (since, until))
        known.save(parts.state)
    except (EngineError, OSError) as error:
        parts.log.warning(LogEvent.SUBMIT_HISTORY_NOT_READ, message=str(error))
    return known


if __name__ == "__main__":
    main()
