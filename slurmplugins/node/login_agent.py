"""Keep a login node's users, limits and keys in step with the head's, and report its state."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from slurmplugins.config import paths
from slurmplugins.errors import EngineError
from slurmplugins.model.login_node import LoginNodeReport
from slurmplugins.node import setup_command
from slurmplugins.slurm import login_reports
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.node.key_follower import KeyFollower
    from slurmplugins.node.sessions import Sessions
    from slurmplugins.node.user_limits import UserLimits
    from slurmplugins.node.users import User, UserListFollower
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner
    from slurmplugins.system.logger import Log

POLL_SECONDS: Final = 3.0
POLLS_PER_REPORT: Final = 5
TIMEOUT: Final = 30.0
SACKD: Final = "sackd.service"
SSHD: Final = "slurm-sshd.service"


@dataclass(frozen=True, slots=True)
class Admission:
    """The users' way in, as the list of users has it."""

    sessions: Sessions
    runner: Runner

    def admit(self, users: tuple[User, ...]) -> None:
        """Let the listed users in, and put out who left.

        Without any key nobody could log in by ssh: then there is no sshd. Raises BootError or
        OSError. Safe to repeat.
        """
        self.sessions.allow(users)
        self.sessions.end(users)
        verb = "start" if any(user.ssh_keys for user in users) else "stop"
        setup_command.run(self.runner, ["/usr/bin/systemctl", verb, SSHD], timeout=TIMEOUT)


@dataclass(slots=True)
class LoginAgent:
    """The agent of one login node, with the parts that it needs."""

    name: str
    instance_id: str
    limits: UserLimits
    user_list: UserListFollower
    keys: KeyFollower
    reports: Path
    """The folder of the login nodes' reports."""
    root: Path
    """The directory that holds the instance's files: `/`, or another one in tests."""
    runner: Runner
    clock: Clock
    log: Log
    _problem: str = ""
    """Why the limits or the list of users could not be followed."""

    def poll(self) -> None:
        """Follow limits, users and wanted keys once. Never raises."""
        try:
            self.limits.follow()
            self.user_list.follow()
            self._problem = ""
        except (EngineError, OSError) as error:
            self._problem = f"its users are not up to date: {error}"
            self.log.warning(LogEvent.USERS_NOT_UPDATED, message=str(error))
        try:
            self.keys.follow()
        except (EngineError, OSError) as error:
            self.log.warning(LogEvent.KEYS_NOT_TAKEN, message=str(error))

    def report(self) -> None:
        """Report this login node's state for the head to read. Never raises."""
        try:
            value = LoginNodeReport(
                self.name, self.instance_id, self.clock.now(), self._host_key(), self.problem()
            )
            login_reports.write(self.reports, value)
        except OSError as error:
            self.log.warning(LogEvent.LOGIN_REPORT_FAILED, message=str(error))

    def problem(self) -> str:
        """Return why users can't work here; empty if they can."""
        argv = ["/usr/bin/systemctl", "is-active", SACKD]
        state = self.runner.run(argv, timeout=TIMEOUT).stdout.strip()
        return self._problem if state == "active" else f"sackd is {state or 'not running'}"

    def _host_key(self) -> str:
        path = self.root / paths.LOGIN_HOST_KEY.relative_to("/")
        return path.with_name(f"{path.name}.pub").read_text(encoding="utf-8").strip()


def watch(agent: LoginAgent, clock: Clock) -> NoReturn:
    """Poll for as long as the login node lives."""
    for number in itertools.count():
        agent.poll()
        if number % POLLS_PER_REPORT == 0:
            agent.report()
        clock.sleep(POLL_SECONDS)
    raise AssertionError("itertools.count has no end")
