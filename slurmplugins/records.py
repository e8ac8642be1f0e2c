"""Write records of money to the bucket of backups; a timer starts it as slurm.

slurm-records write BUCKET    Write what is new of each kind.

Each kind is written whatever becomes of the others, and the first failure ends the program with 1.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from slurmplugins.cloud.client import client
from slurmplugins.cloud.metrics import daily_values
from slurmplugins.cloud.spot_history import spot_prices
from slurmplugins.cloud.stores import S3Store
from slurmplugins.config import burst, paths
from slurmplugins.errors import BadName, EngineError
from slurmplugins.head.in_charge import is_in_charge
from slurmplugins.head.instance_pages import InstancePages
from slurmplugins.head.metric_days import MetricDays
from slurmplugins.head.price_days import PriceDays
from slurmplugins.head.record_state import RecordState, RecordStatus
from slurmplugins.head.sacct_pages import PageWriter
from slurmplugins.head.sacct_windows import Moment
from slurmplugins.head.slurm_instance_days import SlurmInstanceDays
from slurmplugins.model.instance import Lifecycle
from slurmplugins.reconciler.pass_state import PassState
from slurmplugins.slurm.accounting import SlurmAccounting
from slurmplugins.system import files, program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.reconciler.instance_ledger import LedgerEntry
    from slurmplugins.slurm.accounting import Accounting
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


def main() -> None:
    """Run the command and exit with 0 or 1."""
    log = program.open_log("records")

    def work() -> None:
        bucket = parse(sys.argv[1:])
        if not is_in_charge(log):
            return
        config = burst.load(paths.BURST)
        accounting = SlurmAccounting(SystemRunner(), config.slurm_bin)
        connect = _connections(config)
        with files.locked(paths.STATE / "records.lock", wait=False) as is_alone:
            if is_alone:  # else a person runs it by hand
                Writer(
                    config=config,
                    bucket=bucket,
                    accounting=accounting,
                    connect=connect,
                    folder=paths.STATE,
                    clock=SystemClock(),
                    log=log,
                ).run()

    sys.exit(program.run_to_exit_code(log, work))


def parse(arguments: Sequence[str]) -> str:
    """Return the bucket. Raises BadName for anything but the command above."""
    match arguments:
        case ["write", bucket]:
            return bucket
    raise BadName(f"unknown arguments: {' '.join(arguments)[:80]!r}")


def _connections(config: BurstConfig) -> Callable[[str], object]:
    return lambda service: client(service, config.region, config.endpoint_url)


class Writer:
    """A run of the program, with its parts."""

    def __init__(
        self,
        *,
        config: BurstConfig,
        bucket: str,
        accounting: Accounting,
        connect: Callable[[str], object],
        folder: Path,
        clock: Clock,
        log: Log,
    ) -> None:
        self._config = config
        self._bucket = bucket
        self._accounting = accounting
        self._connect = connect
        self._folder = folder
        self._clock = clock
        self._log = log
        self._store = S3Store(bucket, lambda: connect("s3"))
        self._own_bucket = S3Store(config.bucket, lambda: connect("s3"))
        self._state = RecordState.load(folder)

    def run(self) -> None:
        """Write all kinds.

        Raises the first EngineError or OSError, after the others' work.
        """
        errors: list[EngineError | OSError] = []
        kinds = (
            self._instances,
            self._attempts,
            self._prices,
            self._metrics,
            self._slurm_instances,  # its first answer is of a year: nothing waits behind it
        )
        for kind in kinds:
            try:
                kind()
            except (EngineError, OSError) as error:
                errors.append(error)
        status = RecordStatus(self._own_bucket)
        message = str(errors[0]) if errors else ""
        with contextlib.suppress(EngineError):  # the age of the last page tells it too
            status.write(self._state, message, self._clock.now())
        if errors:
            raise errors[0]
        self._log.info(LogEvent.RECORDS_WRITTEN, attempts_until=self._state.place.read)

    def _instances(self) -> None:
        def current_entries() -> list[LedgerEntry]:
            return list(PassState.load(self._folder).ledger.values())

        pages = InstancePages(self._config.cluster, self._own_bucket, self._store, current_entries)
        written = pages.run(self._state.instances, int(self._clock.now()))
        self._save(replace(self._state, instances=written))

    def _attempts(self) -> None:
        writer = PageWriter(
            self._config.cluster,
            self._accounting,
            self._store,
            lambda place: self._save(replace(self._state, place=place)),
        )
        now = Moment(int(self._clock.now()), self._clock.monotonic(), self._clock.boot())
        writer.run(self._state.place, now)

    def _slurm_instances(self) -> None:
        config = self._config
        days = SlurmInstanceDays(
            config.cluster, config.slurm_cluster or config.cluster, self._accounting, self._store
        )
        next_day = days.run(self._state.next_slurm_day, int(self._clock.now()))
        self._save(replace(self._state, next_slurm_day=next_day))

    def _prices(self) -> None:
        config = self._config
        types = {
            offering.type
            for pool in config.pools.values()
            for offering in pool.offerings
            if offering.lifecycle is Lifecycle.SPOT
        }
        PriceDays(
            config.cluster,
            config.region,
            sorted(types),
            lambda names, since, until: spot_prices(
                lambda: self._connect("ec2"), self._clock, names, since, until
            ),
            self._store,
            lambda day: self._save(replace(self._state, next_price_day=day)),
        ).run(self._state.next_price_day, int(self._clock.now()))

    def _metrics(self) -> None:
        config = self._config
        if not config.reads_metrics:
            return
        MetricDays(
            cluster=config.cluster,
            buckets=(config.bucket, self._bucket),
            nat_gateway=config.nat_gateway,
            values=lambda metrics, since, until: daily_values(
                lambda: self._connect("cloudwatch"), self._clock, metrics, since, until
            ),
            store=self._store,
            save=lambda day: self._save(replace(self._state, next_metric_day=day)),
        ).run(self._state.next_metric_day, int(self._clock.now()))

    def _save(self, state: RecordState) -> None:
        state.save(self._folder)
        self._state = state


if __name__ == "__main__":
    main()
