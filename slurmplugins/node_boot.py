"""First boot of a compute node: from a bare machine of the image to a registered Slurm node.

Runs as root, from user data. Who it is comes from its tags through the metadata service; the
cluster's key comes from Secrets Manager by the machine's own role; nothing secret is in user data.
On failure it says why on the console and powers off: a machine that can't become its node costs
money for nothing, and reconcile gives the node's jobs back as soon as it is gone.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins import machine, node_config, paths, runtime, scratch, users
from slurmplugins.clock import SystemClock
from slurmplugins.cloud.session import client
from slurmplugins.cloud.stores import SecretStore
from slurmplugins.errors import BootError, EngineError
from slurmplugins.imds import HttpTransport, Imds
from slurmplugins.runner import SystemRunner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TypeVar

    from slurmplugins.clock import Clock
    from slurmplugins.imds import Metadata
    from slurmplugins.log import Log
    from slurmplugins.node_config import InstanceFacts, NodeConfig
    from slurmplugins.runner import Runner

    _T = TypeVar("_T")

TRIES: Final = 20
PAUSE: Final = 1.5
"""Thirty seconds for a network, a role or a mount that comes up after us."""


@dataclass(frozen=True, slots=True)
class Boot:
    """The parts of a boot; `root` is where the machine's files are."""

    settings: NodeConfig
    metadata: Metadata
    secret: Callable[[str], str]
    runner: Runner
    clock: Clock
    log: Log
    root: Path

    def run(self) -> None:
        """Every step in order; each may be repeated. EngineError when one can't be done."""
        files = machine.Files(self.root)
        facts = self._named(files, self._identity())
        self._patiently("shared filesystem", self._mount)
        key = self._patiently("key", lambda: self.secret(self.settings.secret_id))
        files.slurm_key(key)
        shared = self.root / self.settings.shared.path.relative_to("/")
        users.Follower(paths.users_file(shared), self.runner).follow()
        self._scratch()
        # Started for one job and given to the next, a machine may have read its name too soon.
        if (now := self._identity()).node != facts.node:
            facts = self._named(files, now)
        files.facts(facts)
        files.slurmd(facts, self.settings)
        self._command(["/usr/bin/systemctl", "daemon-reload"])
        self._command(["/usr/bin/systemctl", "start", "slurmd.service"])
        # Its unit comes after ours, which is still running: waiting for it would be for ever.
        self._command(["/usr/bin/systemctl", "start", "--no-block", "slurm-node-agent.service"])
        files.slurmd_started(facts, self.settings)
        self.log.info("registered", node=facts.node)

    def _identity(self) -> InstanceFacts:
        return self._patiently("identity", lambda: machine.identify(self.metadata, self.settings))

    def _named(self, files: machine.Files, facts: InstanceFacts) -> InstanceFacts:
        self.log.info("identity", node=facts.node, instance=facts.instance_id)
        files.name(facts, self.settings)
        self._command(["/usr/bin/hostnamectl", "hostname", facts.node], optional=True)
        self._command(["/usr/bin/hostname", facts.node])
        return facts

    def _scratch(self) -> None:
        """A node without it still runs jobs: their caches are on its root disk then."""
        try:
            if disk := scratch.mount(self.root, self.runner):
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


def main() -> None:
    log = runtime.logger("node-boot")
    runner = SystemRunner()

    def work() -> None:
        from pathlib import Path

        settings = node_config.load()
        secrets = SecretStore(
            lambda: client("secretsmanager", settings.region, settings.endpoint_url)
        )
        clock = SystemClock()
        metadata = Imds(HttpTransport(), clock)
        Boot(settings, metadata, secrets.get, runner, clock, log, Path("/")).run()

    status = runtime.guarded(log, work)
    if status and "--stay" not in sys.argv[1:]:
        runner.run(["/usr/bin/systemctl", "poweroff"], timeout=30)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
