"""Puts the real parts together. The only place that knows which implementation is behind a port."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmplugins import config, decisions, log, paths
from slurmplugins.clock import SystemClock
from slurmplugins.cloud.ec2 import Ec2, S3Store, client
from slurmplugins.executor import Executor
from slurmplugins.journal import Journal
from slurmplugins.offerings import OfferingMemory
from slurmplugins.runner import SystemRunner
from slurmplugins.slurm import ScontrolSlurm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.clock import Clock
    from slurmplugins.cloud.base import Cloud, ObjectStore
    from slurmplugins.config import BurstConfig
    from slurmplugins.log import Log
    from slurmplugins.slurm import Slurm


@dataclass(frozen=True, slots=True)
class Engine:
    """The parts a program of the head node works with."""

    config: BurstConfig
    cloud: Cloud
    store: ObjectStore
    slurm: Slurm
    journal: Journal
    memory: OfferingMemory
    clock: Clock
    log: Log
    state: Path

    @property
    def executor(self) -> Executor:
        return Executor(
            cloud=self.cloud,
            slurm=self.slurm,
            journal=self.journal,
            clock=self.clock,
            log=self.log,
        )


def assemble(logger: Log) -> Engine:
    """The real engine of this head node; ConfigError when burst.json can't be used."""
    clock = SystemClock()
    settings = config.load(paths.BURST)
    region, endpoint = settings.region, settings.endpoint_url
    return Engine(
        config=settings,
        cloud=Ec2(settings.cluster, lambda: client("ec2", region, endpoint)),
        store=S3Store(settings.bucket, lambda: client("s3", region, endpoint)),
        slurm=ScontrolSlurm(SystemRunner(), settings.slurm_bin),
        journal=Journal(paths.STATE, clock),
        memory=OfferingMemory(paths.STATE / "offerings.json", clock),
        clock=clock,
        log=logger,
        state=paths.STATE,
    )


def logger(program: str) -> Log:
    """The program's own log file, and standard error too where systemd collects it."""
    to_file = log.to_file(paths.LOGS / f"{program}.log")
    under_systemd = "INVOCATION_ID" in os.environ

    def both(line: str) -> None:
        log.to_stderr(line)
        if paths.LOGS.is_dir():
            to_file(line)

    write = decisions.recorder(paths.DECISIONS, both if under_systemd else to_file)
    return log.Log(write, SystemClock(), {"program": program, "pid": os.getpid()})


def guarded(logger: Log, work: Callable[[], None]) -> int:
    """Run to an exit code: 0, or 1 with the error in the log. Nothing is swallowed silently."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the last line before the process ends
        import traceback

        logger.problem(
            "failed",
            error=f"{type(error).__name__}: {error}",
            slug=getattr(error, "slug", "bug"),
            trace=traceback.format_exc()[-2000:],
        )
        if sys.stderr is not None:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0
