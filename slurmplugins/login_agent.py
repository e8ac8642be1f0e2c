"""The service on every login node that follows the head.

- It keeps accounts, SSH keys and sessions in step with the cluster's list of users, and the share
  that one user may take with the head's file.
- It has sackd take the keys that the head wants, when Slurm's key is rotated.
- It reports the login node's state on the shared filesystem, where the head reads it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from slurmplugins.cloud.client import client
from slurmplugins.cloud.stores import SecretStore
from slurmplugins.config import login_node, paths
from slurmplugins.model import json_input
from slurmplugins.node import login_agent, users
from slurmplugins.node.key_follower import KeyFollower
from slurmplugins.node.sessions import Sessions
from slurmplugins.node.user_limits import UserLimits
from slurmplugins.system import program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import SystemRunner
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from slurmplugins.config.login_node import LoginNodeConfig
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log

ROOT = Path("/")


def main() -> None:
    log = program.open_log("login-agent")

    def work() -> None:
        settings = login_node.load()
        clock = SystemClock()
        agent = _agent(settings, clock, log.bind(node=settings.name))
        log.info(LogEvent.PROGRAM_STARTED, node=settings.name)
        login_agent.watch(agent, clock)

    raise SystemExit(program.run_to_exit_code(log, work))


def _agent(settings: LoginNodeConfig, clock: Clock, log: Log) -> login_agent.LoginAgent:
    node, name = settings.node, settings.name
    facts = json_input.loads(paths.INSTANCE.read_text(encoding="utf-8"))
    instance_id = str(facts["instance_id"])
    runner = SystemRunner()
    secrets = SecretStore(lambda: client("secretsmanager", node.region, node.endpoint_url))
    admission = login_agent.Admission(Sessions(ROOT, runner, clock), runner)
    keys = KeyFollower(
        node=name,
        instance_id=instance_id,
        requests=paths.key_requests(node.shared.path),
        read_secret=lambda: secrets.get(node.secret_id),
        root=ROOT,
        loaded=paths.LOADED_KEYS,
        runner=runner,
        clock=clock,
        log=log,
        unit=login_agent.SACKD,
    )
    limits_file = paths.login_limits(node.shared.path)
    users_file = paths.users_file(node.shared.path)
    return login_agent.LoginAgent(
        name=name,
        instance_id=instance_id,
        limits=UserLimits(limits_file, ROOT, runner, os.cpu_count() or 1),
        user_list=users.UserListFollower(users_file, runner, admission.admit),
        keys=keys,
        reports=paths.login_reports(node.shared.path),
        root=ROOT,
        runner=runner,
        clock=clock,
        log=log,
    )


if __name__ == "__main__":
    main()
