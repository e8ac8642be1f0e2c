"""Steps that the first boots of compute nodes and of login nodes share. Each may be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import EngineError
from slurmplugins.node import setup_command
from slurmplugins.system.log_events import LogEvent
from slurmplugins.system.retry import retry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeVar

    from slurmplugins.config.node import SharedFilesystem
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner
    from slurmplugins.system.logger import Log

    _T = TypeVar("_T")


TRIES: Final = 20
"""Tries of a step that needs the network, the instance's role or the shared filesystem."""

PAUSE: Final = 1.5
"""Seconds between two tries. Any of these may be ready about 30 s later than this program."""


@dataclass(frozen=True, slots=True)
class BootSteps:
    """The shared steps, with the parts that they need."""

    runner: Runner
    clock: Clock
    log: Log
    root: Path
    """The directory that holds the instance's files: `/`, or another one in tests."""

    def run_command(self, argv: list[str], *, timeout: float = 90, optional: bool = False) -> None:
        """Run a command. Raises BootError when it fails, unless it is optional."""
        if optional:
            self.runner.run(argv, timeout=timeout)
        else:
            setup_command.run(self.runner, argv, timeout=timeout)

    def set_host_name(self, name: str) -> None:
        """Set the running system's host name."""
        self.run_command(["/usr/bin/hostnamectl", "hostname", name], optional=True)
        self.run_command(["/usr/bin/hostname", name])

    def mount_shared(self, shared: SharedFilesystem) -> None:
        """Mount the shared filesystem, if it is not mounted. Raises BootError."""
        target = str(shared.path)
        if setup_command.is_mounted(self.runner, target):
            return
        (self.root / shared.path.relative_to("/")).mkdir(parents=True, exist_ok=True)
        source = f"{shared.dns}@tcp:/{shared.mount_name}"
        self.run_command(
            ["/usr/bin/mount", "-t", "lustre", "-o", "relatime,flock", source, target], timeout=60
        )

    def with_retries(self, step_name: str, step: Callable[[], _T]) -> _T:
        """Repeat a step until it succeeds.

        Raises its last EngineError after 20 tries.
        """

        def log_error(error: EngineError) -> None:
            self.log.warning(LogEvent.BOOT_STEP_FAILED, step=step_name, message=error.message)

        return retry(step, EngineError, repeat(PAUSE, TRIES - 1), self.clock, failed=log_error)
