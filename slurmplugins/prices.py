"""Write the prices that sbatch tells a user; a systemd timer starts this program as slurm.

Where cluster.yaml turns the line off, the file is removed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from slurmplugins.cloud.client import client
from slurmplugins.cloud.spot_history import spot_prices
from slurmplugins.config import burst, paths, submit_line
from slurmplugins.head import price_file
from slurmplugins.system import program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.files import write_atomically
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.system.clock import Clock


def main() -> None:
    """Run the program and exit with 0 or 1."""
    log = program.open_log("prices")

    def work() -> None:
        config = burst.load(paths.BURST)

        def connect() -> object:
            return client("ec2", config.region, config.endpoint_url)

        if write(paths.BURST, paths.PRICES_FOR_SUBMIT, paths.STATE, connect, SystemClock()):
            log.info(LogEvent.PRICES_WRITTEN)

    sys.exit(program.run_to_exit_code(log, work))


def write(
    burst_file: Path, prices_file: Path, state: Path, connect: Callable[[], object], clock: Clock
) -> bool:
    """Write the file; return False where the line is off.

    Raises CloudError, ConfigError or OSError. The old file stays then, with its age.
    """
    config, part = burst.load(burst_file), submit_line.load(burst_file)
    if part is None:
        prices_file.unlink(missing_ok=True)
        return False
    now = int(clock.now())
    types = price_file.spot_types(config)
    points = spot_prices(connect, clock, types, now, now + 1) if types else []
    content = price_file.document(
        config,
        part,
        price_file.current_prices(points),
        price_file.read_remaining(state, now),
        now,
    )
    write_atomically(prices_file, content, mode=0o644)
    return True


if __name__ == "__main__":
    main()
