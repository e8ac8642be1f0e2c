"""Boot of a login node: from a bare instance of the head's image to a place where users work.

It runs as root, at every boot. User data has written node.json, without any secret. The cluster's
key comes from Secrets Manager, by the instance's own role.
"""

from __future__ import annotations

from pathlib import Path

from slurmplugins.cloud.client import client
from slurmplugins.cloud.stores import SecretStore
from slurmplugins.config import login_node
from slurmplugins.node.imds import HttpTransport, Imds
from slurmplugins.node.login_boot import LoginBoot
from slurmplugins.system import program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner


def main() -> None:
    log = program.open_log("login-boot")

    def work() -> None:
        settings = login_node.load()
        node, clock = settings.node, SystemClock()
        secrets = SecretStore(lambda: client("secretsmanager", node.region, node.endpoint_url))
        LoginBoot(
            settings,
            Imds(HttpTransport(), clock),
            secrets.get,
            SystemRunner(),
            clock,
            log,
            Path("/"),
        ).run()

    raise SystemExit(program.run_to_exit_code(log, work))


if __name__ == "__main__":
    main()
