"""First boot of a compute node, step by step. Each step may be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import BootError, EngineError
from slurmplugins.node import instance_store, slurmd_setup, users

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeVar

    from slurmplugins.config.node import InstanceFacts, NodeConfig
    from slurmplugins.node.imds import Metadata
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner
    from slurmplugins.system.logger import Log

    _T = TypeVar("_T")


TRIES: Final = 20
PAUSE: Final = 1.5
"""Seconds between two tries: 30 s in all for a network, a role or a mount that comes up after us.
"""


@dataclass(frozen=True, slots=True)
class Boot:
    """The first boot of one compute node, with the parts that it needs."""

    settings: NodeConfig
    metadata: Metadata
    secret: Callable[[str], str]
    """Returns the value of a secret, by its id."""
    runner: Runner
    clock: Clock
    log: Log
    root: Path
    """The directory that holds the instance's files: `/`, or another one in tests."""

    def run(self) -> None:
        """Take every step in order, up to a registered slurmd.

        Safe to repeat. Raises EngineError when a step fails.
        """
        files = slurmd_setup.Files(self.root)
        facts = self._named(files, self._identity())
        self._patiently("shared filesystem", self._mount)
        key = self._patiently("key", lambda: self.secret(self.settings.secret_id))
        files.slurm_key(key)
        shared = self.root / self.settings.shared.path.relative_to("/")
        users.Follower(paths.users_file(shared), self.runner).follow()
        self._scratch()
        # An instance may be reassigned to another job just after it has read its name.
        if (now := self._identity()).node != facts.node:
            facts = self._named(files, now)
        files.facts(facts)
        files.slurmd(facts, self.settings)
        self._command(["/usr/bin/systemctl", "daemon-reload"])
        self._command(["/usr/bin/systemctl", "start", "slurmd.service"])
        # Its unit is ordered after ours, which still runs: waiting for it would never end.
        self._command(["/usr/bin/systemctl", "start", "--no-block", "slurm-node-agent.service"])
        files.slurmd_started(facts, self.settings)
        self.log.info("registered", node=facts.node)

    def _identity(self) -> InstanceFacts:
        return self._patiently(
            "identity", lambda: slurmd_setup.identify(self.metadata, self.settings)
        )

    def _named(self, files: slurmd_setup.Files, facts: InstanceFacts) -> InstanceFacts:
        self.log.info("identity", node=facts.node, instance=facts.instance_id)
        files.name(facts, self.settings)
        self._command(["/usr/bin/hostnamectl", "hostname", facts.node], optional=True)
        self._command(["/usr/bin/hostname", facts.node])
        return facts

    def _scratch(self) -> None:
        """Mount the instance store; only warn if that fails.

        A node without it still runs jobs: their caches are then on its root disk.
        """
        try:
            if disk := instance_store.mount(self.root, self.runner):
                self.log.info("scratch", disk=disk)
        except EngineError as error:
            self.log.warning("no scratch", message=error.message)

    def _mount(self) -> None:
        shared = self.settings.shared
        target = str(shared.path)
        if self.runner.run(["/usr/bin/mountpoint", "-q", target], timeout=10).returncode == 0:
            return
        (self.root / shared.path.relative_to("/")).mkdir(parents=True, exist_ok=True)
        source = f"{shared.dns}@tcp:/{shared.mount_name}"
        self._command(
            ["/usr/bin/mount", "-t", "lustre", "-o", "relatime,flock", source, target], timeout=60
        )

    def _command(self, argv: list[str], *, timeout: float = 90, optional: bool = False) -> None:
        done = self.runner.run(argv, timeout=timeout)
        if done.returncode and not optional:
            said = (done.stderr or done.stdout).strip()[-400:]
            raise BootError(f"{' '.join(argv)[:200]}: {said}")

    def _patiently(self, what: str, step: Callable[[], _T]) -> _T:
        for left in range(TRIES - 1, -1, -1):
            try:
                return step()
            except EngineError as error:
                self.log.warning("not yet", step=what, message=error.message)
                if not left:
                    raise
                self.clock.sleep(PAUSE)
        raise AssertionError("unreachable")
