"""The credential broker on every compute node: S3 for jobs, without the instance's role.

It answers on loopback to processes that have their job's token (`node.credential_broker`). It is a
process of its own: users talk to it, and the node agent must not wait for them.
"""

from __future__ import annotations

import threading
from itertools import repeat
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud.client import client
from slurmplugins.cloud.job_role import JobRole
from slurmplugins.config import node as node_config, paths
from slurmplugins.errors import CloudError
from slurmplugins.node.broker_server import PORT, BrokerServer
from slurmplugins.node.credential_broker import CredentialBroker
from slurmplugins.system import program, systemd
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.log_events import LogEvent
from slurmplugins.system.retry import retry

if TYPE_CHECKING:
    from slurmplugins.model.credentials import Credentials
    from slurmplugins.node.job_tokens import JobIdentity
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log

CONNECT_TRIES: Final = 20
CONNECT_PAUSE: Final = 1.5


def main() -> None:
    log = program.open_log("node-credentials")

    def work() -> None:
        settings, clock = node_config.load(), SystemClock()
        if settings.job_role is None:
            systemd.notify_ready()
            return  # the cluster keeps nothing of its jobs in S3
        role = JobRole(
            settings.job_role, lambda: client("sts", settings.region, settings.endpoint_url), clock
        )
        server = open_server(role, clock, log)
        log.info(LogEvent.PROGRAM_STARTED, port=PORT)
        systemd.notify_ready()
        server.serve_forever()

    raise SystemExit(program.run_to_exit_code(log, work))


def open_server(role: JobRole, clock: Clock, log: Log, *, port: int = PORT) -> BrokerServer:
    """Listen, and connect to AWS in the background.

    After a boot that may take half a minute. SDKs give up after three seconds if nothing listens.
    Raises OSError.
    """

    def assume_role(identity: JobIdentity) -> Credentials:
        return role.credentials(user=identity.user, account=identity.account, job=identity.job)

    def connect() -> None:
        try:
            retry(role.connect, CloudError, repeat(CONNECT_PAUSE, CONNECT_TRIES - 1), clock)
        except CloudError as error:  # a job's request tries again
            log.failure(LogEvent.CREDENTIALS_NOT_ISSUED, message=error.message)

    server = BrokerServer(CredentialBroker(paths.JOB_TOKENS, assume_role, clock, log), clock, port)
    threading.Thread(target=connect, daemon=True).start()
    return server


if __name__ == "__main__":
    main()
