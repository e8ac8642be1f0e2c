"""Puts the real parts together. The only place that knows which implementation is behind a port."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from slurmplugins import config, decisions, log, paths
from slurmplugins.clock import SystemClock
from slurmplugins.crew import Crew
from slurmplugins.errors import ConfigError, SlurmError, SlurmUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurmplugins.brake_file import Brake
    from slurmplugins.clock import Clock
    from slurmplugins.cloud.base import Cloud, ObjectStore
    from slurmplugins.config import BurstConfig
    from slurmplugins.errors import EngineError
    from slurmplugins.executor import Executor
    from slurmplugins.journal import Journal
    from slurmplugins.log import Log
    from slurmplugins.model import JobAsk
    from slurmplugins.offerings import OfferingMemory
    from slurmplugins.slurm import Slurm
    from slurmplugins.steady import Steady


WORKERS: Final = 8
"""Calls under way at once: more than EC2's rates let through in the seconds a call takes."""


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
    stop_requests: Path
    crew: Crew = field(default_factory=Crew)

    @property
    def brake(self) -> Brake:
        from slurmplugins.brake_file import Brake

        return Brake(self.state, self.clock)

    @property
    def steady(self) -> Steady:
        from slurmplugins.steady import Steady

        return Steady(self.state, self.clock)

    @property
    def executor(self) -> Executor:
        from slurmplugins.executor import Executor

        return Executor(
            cloud=self.cloud,
            slurm=self.slurm,
            journal=self.journal,
            clock=self.clock,
            log=self.log,
            stop_requests=self.stop_requests,
            brake=self.brake,
        )


def assemble(logger: Log) -> Engine:
    """The real engine of this head node; ConfigError when burst.json can't be used."""
    settings = config.load(paths.BURST)
    check_cluster(settings.cluster, paths.SLURM_CONF)
    # Only now: what is refused above is refused before any of it is loaded.
    from slurmplugins.cloud.buckets import Rate
    from slurmplugins.cloud.ec2 import Ec2
    from slurmplugins.cloud.paced import PacedCloud
    from slurmplugins.cloud.session import client
    from slurmplugins.cloud.stores import S3Store
    from slurmplugins.journal import Journal
    from slurmplugins.offerings import OfferingMemory
    from slurmplugins.runner import SystemRunner
    from slurmplugins.slurm import ScontrolSlurm

    clock = SystemClock()
    region, endpoint = settings.region, settings.endpoint_url
    return Engine(
        config=settings,
        cloud=PacedCloud(
            Ec2(settings.cluster, lambda: client("ec2", region, endpoint), clock),
            clock,
            patience=settings.resume_timeout / 4,
            instances=Rate(*settings.instance_rate) if settings.instance_rate else None,
        ),
        store=S3Store(settings.bucket, lambda: client("s3", region, endpoint)),
        slurm=ScontrolSlurm(SystemRunner(), settings.slurm_bin, log=logger),
        journal=Journal(paths.STATE, clock),
        memory=OfferingMemory(paths.STATE / "offerings.json", clock),
        clock=clock,
        log=logger,
        state=paths.STATE,
        stop_requests=paths.stop_requests(paths.SHARED),
        crew=Crew(WORKERS),
    )


def check_cluster(cluster: str, slurm_conf: Path) -> None:
    """ConfigError when slurm.conf is of another cluster than burst.json: its nodes may have the
    same names, and its machines would be launched and ended for the wrong one.
    """
    try:
        text = slurm_conf.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # slurmctld may keep it elsewhere
    named = re.search(r"^\s*ClusterName\s*=\s*([^\s#]+)", text, re.IGNORECASE | re.MULTILINE)
    if named and named[1].lower() != cluster.lower():
        raise ConfigError((f"burst.json is of cluster {cluster}, slurm.conf of {named[1][:80]}",))


def refuse(
    slurm: Slurm, clock: Clock, logger: Log, asks: Sequence[JobAsk], error: EngineError
) -> None:
    """Give the nodes back with the reason why there is no engine to launch them, and hold the jobs:
    the file is as wrong at their next try.
    """
    from slurmplugins import awaiting
    from slurmplugins.model import Failure
    from slurmplugins.telling import Teller

    waiting = awaiting.read(slurm, clock, logger, [node for ask in asks for node in ask.nodes])
    failures = [
        Failure(ask.job, ask.wanted, error.slug, message=error.message, hold=True)
        for ask in asks
        if waiting is None or not waiting.isdisjoint(ask.wanted)
    ]
    if not failures:
        return
    jobs = [item.job for item in failures if item.job is not None]
    unread, said = decisions.NOT_GIVEN_BACK, {"slug": error.slug, "message": error.message}
    if waiting is None:
        logger.problem(unread, jobs=jobs, **said)
        return
    nodes = sorted(waiting)
    for call in (partial(slurm.down, nodes, failures[0].reason), partial(slurm.power_down, nodes)):
        try:
            call()
        except SlurmError as refused:
            logger.problem(unread, jobs=jobs, **said, error=refused.message)
            if isinstance(refused, SlurmUnreachable):
                return
    Teller(slurm, logger).failures(failures)


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
            slug=getattr(error, "slug", "state" if isinstance(error, OSError) else "bug"),
            trace=traceback.format_exc()[-2000:],
        )
        if sys.stderr is not None:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0
