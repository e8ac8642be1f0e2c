"""The parts that a program of the head node works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slurmplugins.system.workers import WorkerPool

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.cloud.port import Cloud, ObjectStore
    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.execution.executor import Executor
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.state.journal import Journal
    from slurmplugins.state.launch_budget_file import LaunchBudget
    from slurmplugins.state.persistent_clock import PersistentClock
    from slurmplugins.state.unavailable_offerings import UnavailableOfferings
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log


@dataclass(frozen=True, slots=True)
class Engine:
    """The ports, state files and settings that one program of the head node works with."""

    config: BurstConfig
    cloud: Cloud
    store: ObjectStore
    slurm: Slurm
    journal: Journal
    unavailable_offerings: UnavailableOfferings
    clock: Clock
    log: Log
    state: Path
    """The directory of the head's state files."""
    stop_requests: Path
    """The directory on the shared filesystem that node agents and jobs watch."""
    login_reports: Path
    """The directory on the shared filesystem in which login nodes report."""
    workers: WorkerPool = field(default_factory=WorkerPool)
    """Threads for calls that may be made at once; one thread unless `assemble` gives more."""

    # These imports are late: each costs start-up time, and `resume` must read its file first.
    @property
    def launch_budget(self) -> LaunchBudget:
        from slurmplugins.state.launch_budget_file import LaunchBudget

        return LaunchBudget(self.state, self.clock)

    @property
    def persistent_clock(self) -> PersistentClock:
        from slurmplugins.state.persistent_clock import PersistentClock

        return PersistentClock(self.state, self.clock)

    @property
    def executor(self) -> Executor:
        from slurmplugins.execution.executor import Executor

        return Executor(
            cloud=self.cloud,
            slurm=self.slurm,
            journal=self.journal,
            clock=self.clock,
            log=self.log,
            stop_requests=self.stop_requests,
            launch_budget=self.launch_budget,
        )
