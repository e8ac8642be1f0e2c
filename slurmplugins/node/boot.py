"""First boot of a compute node, step by step. Each step may be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.errors import BootError, EngineError
from slurmplugins.node import instance_store, joined, slurmd_setup, users
from slurmplugins.node.boot_steps import BootSteps
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.config.node import InstanceFacts, NodeConfig
    from slurmplugins.node.imds import Metadata
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner
    from slurmplugins.system.logger import Log

IMDS_ACCESS: Final = str(paths.BIN / "slurm-imds-access")
CREDENTIALS_UNIT: Final = "slurm-node-credentials.service"
AGENT_UNITS: Final = ("slurm-node-ident.service", "slurm-node-agent.service")


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
        steps = self._steps
        # First: the instance has no secret yet, and runs no user's code.
        steps.run_command([IMDS_ACCESS])
        files = slurmd_setup.NodeFiles(self.root)
        facts = self._apply_name(files, self._read_identity())
        self._prepare_accounts(files)
        self._mount_scratch()
        # An instance may be reassigned to another node just after it has read its name.
        if (current_facts := self._read_identity()).node != facts.node:
            facts = self._apply_name(files, current_facts)
        files.write_facts(facts)
        files.write_slurmd_unit(facts, self.settings)
        steps.run_command(["/usr/bin/systemctl", "daemon-reload"])
        self._start_broker()
        steps.run_command(["/usr/bin/systemctl", "start", "slurmd.service"])
        # These units start only after this program's unit has ended: do not wait for them.
        steps.run_command(["/usr/bin/systemctl", "start", "--no-block", *AGENT_UNITS])
        files.clear_boot_flag(facts, self.settings)
        self.log.info(LogEvent.SLURMD_STARTED, node=facts.node)

    def _prepare_accounts(self, files: slurmd_setup.NodeFiles) -> None:
        """Mount the shared filesystem; get the key, and the users' accounts.

        The node of a join has the site's accounts and no shared filesystem.
        """
        steps, filesystem, site = self._steps, self.settings.shared, self.settings.site
        if site is None:
            steps.with_retries("shared filesystem", lambda: steps.mount_shared(filesystem))
        else:
            joined.set_slurm_user(site, self.runner)
            joined.write_users(self.root, site)
        key = steps.with_retries("key", lambda: self.read_secret(self.settings.secret_id))
        if site is None:
            files.write_slurm_key(key)
        else:
            joined.write_key(self.root, key, self.runner)
        shared = self.root / filesystem.path.relative_to("/")
        users.UserListFollower(paths.users_file(shared), self.runner).follow()
        if site is not None:
            joined.make_homes(self.root, site)

    @property
    def _steps(self) -> BootSteps:
        return BootSteps(self.runner, self.clock, self.log, self.root)

    def _read_identity(self) -> InstanceFacts:
        return self._steps.with_retries(
            "identity", lambda: slurmd_setup.identify(self.metadata, self.settings)
        )

    def _apply_name(self, files: slurmd_setup.NodeFiles, facts: InstanceFacts) -> InstanceFacts:
        self.log.info(LogEvent.NODE_IDENTIFIED, node=facts.node, instance=facts.instance_id)
        files.write_host_name(facts.node, facts.address, self.settings)
        self._steps.set_host_name(facts.node)
        return facts

    def _start_broker(self) -> None:
        """Start the credential broker, and wait until it listens.

        The first job may begin as soon as slurmd has registered. A failure is only a warning:
        systemd starts the broker again, and a job without data in S3 needs none.
        """
        if self.settings.job_role is None:
            return
        try:
            self._steps.run_command(["/usr/bin/systemctl", "start", CREDENTIALS_UNIT])
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
