"""First boot of a login node, step by step. Each step may be repeated, at every boot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.config import paths
from slurmplugins.config.node import SLURMCTLD_PORT
from slurmplugins.errors import BootError
from slurmplugins.node.boot import IMDS_ACCESS
from slurmplugins.node.boot_steps import BootSteps
from slurmplugins.node.slurmd_setup import NodeFiles
from slurmplugins.system.files import write_atomically
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.config.login_node import LoginNodeConfig
    from slurmplugins.node.imds import Metadata
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner
    from slurmplugins.system.logger import Log

HEAD_UNITS: Final = ("mariadb.service", "slurmdbd.service", "slurmctld.service")
"""Daemons of the head, whose image this instance has."""

UNITS: Final = ("sackd.service", "slurm-node-ident.service", "slurm-login-agent.service")

SACKD_DROP_IN: Final = f"""# Written at boot by slurm-login-boot; the values are in the file below.
[Unit]
# It ends while slurmctld does not answer: it is started again for as long as the instance lives.
StartLimitIntervalSec=0

[Service]
EnvironmentFile={paths.SACKD_ENVIRONMENT}
ExecStart=
ExecStart=/usr/sbin/sackd --systemd --conf-server ${{TOOLKIT_CONF_SERVER}}
Restart=on-failure
RestartSec=2
"""


@dataclass(frozen=True, slots=True)
class LoginBoot:
    """The boot of one login node, with the parts that it needs."""

    settings: LoginNodeConfig
    metadata: Metadata
    read_secret: Callable[[str], str]
    """Returns the value of a secret, by its id."""
    runner: Runner
    clock: Clock
    log: Log
    root: Path
    """The directory that holds the instance's files: `/`, or another one in tests."""

    def run(self) -> None:
        """Take every step in order, until sackd and the agent are started.

        Safe to repeat. Raises EngineError when a step fails.
        """
        name, node = self.settings.name, self.settings.node
        steps = BootSteps(self.runner, self.clock, self.log, self.root)
        # First: the instance has no secret yet, and no user. The head's image lets slurm reach the
        # role of its instance as well; here nothing of slurm's needs it.
        steps.run_command([IMDS_ACCESS])
        steps.run_command(["/usr/bin/systemctl", "mask", "--now", *HEAD_UNITS])
        files = NodeFiles(self.root)
        instance_id, address = steps.with_retries("identity", self._identity)
        files.write_host_name(name, address, node)
        steps.set_host_name(name)
        self._write(paths.INSTANCE, json.dumps({"instance_id": instance_id, "node": name}))
        steps.with_retries("shared filesystem", lambda: steps.mount_shared(node.shared))
        key = steps.with_retries("key", lambda: self.read_secret(node.secret_id))
        files.write_slurm_key(key)
        self._write_sackd_unit()
        self._make_host_key(steps)
        steps.run_command(["/usr/bin/systemctl", "daemon-reload"])
        # They start only after this program's unit has ended: do not wait for them.
        steps.run_command(["/usr/bin/systemctl", "start", "--no-block", *UNITS])
        self.log.info(LogEvent.LOGIN_NODE_STARTED, node=name, instance=instance_id)

    def _identity(self) -> tuple[str, str]:
        """Return the instance's id and address."""
        instance_id, address = map(self.metadata.get, ("instance-id", "local-ipv4"))
        if not instance_id or not address:
            raise BootError("the metadata service has no instance-id or no local-ipv4")
        return instance_id.strip(), address.strip()

    def _write_sackd_unit(self) -> None:
        values = {
            # Without these, sackd looks for the key beside its cached slurm.conf.
            "SLURM_SACK_KEY": str(paths.SLURM_KEY),
            "SLURM_SACK_JWKS": str(paths.SLURM_JWKS),
            "TOOLKIT_CONF_SERVER": f"{self.settings.node.head_address}:{SLURMCTLD_PORT}",
        }
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        self._write(paths.SACKD_ENVIRONMENT, text)
        self._write(paths.SACKD_DROP_IN, SACKD_DROP_IN)

    def _make_host_key(self, steps: BootSteps) -> None:
        """Make sshd's key at the first boot.

        It stays for the instance's life.
        """
        path = self.root / paths.LOGIN_HOST_KEY.relative_to("/")
        if path.exists():
            return
        argv = ["/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.settings.name]
        steps.run_command([*argv, "-f", str(path)])

    def _write(self, path: Path, text: str) -> None:
        target = self.root / path.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, text.encode(), mode=0o644)
