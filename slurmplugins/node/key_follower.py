"""Keeps slurmd, or sackd on a login node, at the keys that the head wants, and reports them.

slurmd reads its key at its start. On a reload it starts itself anew, and its jobs go on. Their
steps ask slurmd for credentials, and have no key of their own (sack.c in auth/slurm). sackd starts
itself anew as well (sackd.c, _try_to_reconfig).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BootError
from slurmplugins.model import slurm_keys
from slurmplugins.node import key_files, setup_command
from slurmplugins.slurm import key_requests
from slurmplugins.system.files import write_atomically
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner
    from slurmplugins.system.logger import Log

SLURMD: Final = "slurmd.service"
RELOAD_SECONDS: Final = 60.0
"""A daemon that is not new after this time is asked again. It first waits for its RPCs."""
TIMEOUT: Final = 30.0


@dataclass(slots=True)
class KeyFollower:
    """The part of the node agent that follows the rotation of Slurm's key."""

    node: str
    instance_id: str
    requests: Path
    """The folder of the head's wish and of the nodes' reports."""
    read_secret: Callable[[], str]
    root: Path
    loaded: Path
    """The file that names the generation which the daemon has. It ends with a boot."""
    runner: Runner
    clock: Clock
    log: Log
    unit: str = SLURMD
    """The daemon that has the keys."""
    _reloading: tuple[str, int, float] | None = None
    """The generation that the daemon reads now, its process before that, and the time."""
    _reported: str = ""

    def follow(self) -> None:
        """Take the wanted keys, or go on with that.

        Raises BootError, CloudError or OSError; the next call repeats the step.
        """
        wanted = key_requests.read_wanted(self.requests)
        if not wanted:
            return
        if self._reloading is not None:
            self._look_at_reload(*self._reloading)
        if self._reloading is None and self._loaded() != wanted:
            self._take(wanted)
        if self._loaded() == wanted != self._reported:
            key_requests.write_report(self.requests, self.node, self.instance_id, wanted)
            self._reported = wanted

    def _take(self, wanted: str) -> None:
        keys = slurm_keys.parse(self.read_secret())
        if keys.generation != wanted:
            raise BootError("Secrets Manager has not the keys that the head wants, or newer ones")
        process = self._process()
        key_files.write(self.root, keys)
        reload = ["/usr/bin/systemctl", "reload", self.unit]
        setup_command.run(self.runner, reload, timeout=TIMEOUT)
        self._reloading = (wanted, process, self.clock.now())

    def _look_at_reload(self, generation: str, before: int, at: float) -> None:
        process = self._process()
        if process not in {0, before}:
            self._reloading = None
            write_loaded(self.loaded, generation)
            self.log.info(LogEvent.KEYS_TAKEN, generation=generation)
        elif self.clock.now() - at > RELOAD_SECONDS:
            self._reloading = None

    def _process(self) -> int:
        """Return the process id of the daemon, 0 without one."""
        argv = ["/usr/bin/systemctl", "show", "--property=MainPID", "--value", self.unit]
        text = self.runner.run(argv, timeout=TIMEOUT).stdout.strip()
        return int(text) if text.isdecimal() else 0

    def _loaded(self) -> str:
        try:
            return self.loaded.read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            return ""


def write_loaded(path: Path, generation: str) -> None:
    """Note which keys slurmd reads at the start that follows. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, f"{generation}\n".encode(), mode=0o644)
