"""First boot of a compute node: from a bare instance of the image to a registered Slurm node.

It runs as root, from user data. The instance learns its node from its tags, through the metadata
service. The cluster's key comes from Secrets Manager, by the instance's own role. User data holds
no secret.

On failure it says why on the console and powers off. An instance that can't become its node costs
money for nothing. reconcile gives the node's jobs back as soon as it is gone.
"""

from __future__ import annotations

import sys
from pathlib import Path

from slurmplugins.cloud.client import client
from slurmplugins.cloud.stores import SecretStore
from slurmplugins.config import node
from slurmplugins.node.boot import Boot
from slurmplugins.node.imds import HttpTransport, Imds
from slurmplugins.system import program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner


def main() -> None:
    log = program.open_log("node-boot")
    runner = SystemRunner()

    def work() -> None:
        settings = node.load()
        secrets = SecretStore(
            lambda: client("secretsmanager", settings.region, settings.endpoint_url)
        )
        clock = SystemClock()
        metadata = Imds(HttpTransport(), clock)
        Boot(settings, metadata, secrets.get, runner, clock, log, Path("/")).run()

    status = program.run_to_exit_code(log, work)
    if status and "--stay" not in sys.argv[1:]:
        runner.run(["/usr/bin/systemctl", "poweroff"], timeout=30)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
