"""First boot of a compute node, step by step. Each step may be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import BootError, EngineError
from slurmplugins.node import instance_store, slurmd_setup, users
from slurmplugins.system.log_events import LogEvent
from slurmplugins.system.retry import retry

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
"""Tries of a step that needs the network, the instance's role or the shared filesystem."""

IMDS_ACCESS: Final = str(paths.BIN / "slurm-imds-access")
CREDENTIALS_UNIT: Final = "slurm-node-credentials.service"
AGENT_UNITS: Final = ("slurm-node-ident.service", "slurm-node-agent.service")

PAUSE: Final = 1.5
"""Seconds between two tries. Any of these may be ready about 30 s later than this program."""


@dataclass(frozen=True, slots=True)
class Boot:
    """The first boot of one compute node, with the parts that it needs."""

    settings: NodeConfig
    metadata: Metadata
    read_secret: Callable[[str], str]
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
        # First: the instance has no secret yet, and runs no user's code.
        self._run_command([IMDS_ACCESS])
        files = slurmd_setup.NodeFiles(self.root)
        facts = self._apply_name(files, self._read_identity())
        self._with_retries("shared filesystem", self._mount_shared)
        key = self._with_retries("key", lambda: self.read_secret(self.settings.secret_id))
        files.write_slurm_key(key)
        shared = self.root / self.settings.shared.path.relative_to("/")
        users.UserListFollower(paths.users_file(shared), self.runner).follow()
        self._mount_scratch()
        # An instance may be reassigned to another node just after it has read its name.
        if (current_facts := self._read_identity()).node != facts.node:
            facts = self._apply_name(files, current_facts)
        files.write_facts(facts)
        files.write_slurmd_unit(facts, self.settings)
        self._run_command(["/usr/bin/systemctl", "daemon-reload"])
        self._start_broker()
        self._run_command(["/usr/bin/systemctl", "start", "slurmd.service"])
        # These units start only after this program's unit has ended: do not wait for them.
        self._run_command(["/usr/bin/systemctl", "start", "--no-block", *AGENT_UNITS])
        files.clear_boot_flag(facts, self.settings)
        self.log.info(LogEvent.SLURMD_STARTED, node=facts.node)

    def _read_identity(self) -> InstanceFacts:
        return self._with_retries(
            "identity", lambda: slurmd_setup.identify(self.metadata, self.settings)
        )

    def _apply_name(self, files: slurmd_setup.NodeFiles, facts: InstanceFacts) -> InstanceFacts:
        self.log.info(LogEvent.NODE_IDENTIFIED, node=facts.node, instance=facts.instance_id)
        files.write_host_name(facts, self.settings)
        self._run_command(["/usr/bin/hostnamectl", "hostname", facts.node], optional=True)
        self._run_command(["/usr/bin/hostname", facts.node])
        return facts

    def _start_broker(self) -> None:
        """Start the credential broker, and wait until it listens.

        The first job may begin as soon as slurmd has registered. A failure is only a warning:
        systemd starts the broker again, and a job without data in S3 needs none.
        """
        if self.settings.job_role is None:
            return
        try:
            self._run_command(["/usr/bin/systemctl", "start", CREDENTIALS_UNIT])
        except BootError as error:
            self.log.warning(
                LogEvent.BOOT_STEP_FAILED, step="credential broker", message=error.message
            )

    def _mount_scratch(self) -> None:
        """Mount the instance store, and make the folders of jobs.

        A node whose disk can't be used still runs jobs: their files are then on its root disk.
        """
        disk = ""
        try:
            if disk := instance_store.mount(self.root, self.runner):
                self.log.info(LogEvent.SCRATCH_MOUNTED, disk=disk)
        except EngineError as error:
            self.log.warning(LogEvent.SCRATCH_NOT_MOUNTED, message=error.message)
        instance_store.make_folders(self.root, self.runner, disk=disk)

    def _mount_shared(self) -> None:
        shared = self.settings.shared
        target = str(shared.path)
        if self.runner.run(["/usr/bin/mountpoint", "-q", target], timeout=10).returncode == 0:
            return
        (self.root / shared.path.relative_to("/")).mkdir(parents=True, exist_ok=True)
        source = f"{shared.dns}@tcp:/{shared.mount_name}"
        self._run_command(
            ["/usr/bin/mount", "-t", "lustre", "-o", "relatime,flock", source, target], timeout=60
        )

    def _run_command(self, argv: list[str], *, timeout: float = 90, optional: bool = False) -> None:
        result = self.runner.run(argv, timeout=timeout)
        if result.returncode and not optional:
            output = (result.stderr or result.stdout).strip()[-400:]
            raise BootError(f"{' '.join(argv)[:200]} failed: {output}")

    def _with_retries(self, step_name: str, step: Callable[[], _T]) -> _T:
        def log_error(error: EngineError) -> None:
            self.log.warning(LogEvent.BOOT_STEP_FAILED, step=step_name, message=error.message)

        return retry(step, EngineError, repeat(PAUSE, TRIES - 1), self.clock, failed=log_error)
