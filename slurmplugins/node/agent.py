"""Pass on EC2's notices about this instance's end, and the head's requests to slurmd."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Final, NoReturn

from slurmplugins.errors import EngineError, MetadataError, SlurmError
from slurmplugins.model.instance import EVENT_HORIZON, Kind
from slurmplugins.model.node import REASON_PREFIX, SPOT_INTERRUPTION
from slurmplugins.node import interruption
from slurmplugins.slurm import agent_requests
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.model.instance import Notice
    from slurmplugins.node.imds import Metadata
    from slurmplugins.node.key_follower import KeyFollower
    from slurmplugins.node.users import UserListFollower
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner
    from slurmplugins.system.logger import Log


POLL_SECONDS: Final = 1.0

POLLS_PER_USER_UPDATE: Final = 5
"""Polls between two reads of the user list, of the wanted keys and of reconcile's request."""

JOBS_SECONDS: Final = 2.0
"""Seconds that slurmctld has to list the node's jobs.

Each job must have its stop request within five seconds of the notice.
"""

DRAIN_SECONDS: Final = 4.0
"""Seconds that slurmctld has to drain the node, while the jobs are asked to stop."""

EVENTS_SECONDS: Final = 30.0
"""Seconds between two reads of the scheduled events. EC2 announces them hours to weeks ahead."""

STOP_LEAD_SECONDS: Final = 600.0
"""Seconds before a scheduled event at which jobs are asked to save and stop."""

RELOAD: Final = ("/usr/bin/systemctl", "reload", "slurmd.service")
RELOAD_SECONDS: Final = 30.0
"""Time limit of the reload. systemd only sends a signal, and slurmd does the rest by itself."""


@dataclass(slots=True)
class Agent:
    """The agent of one compute node: it reads notices, drains the node, and asks jobs to stop."""

    node: str
    instance_id: str
    metadata: Metadata
    slurm: Slurm
    read_attempts: Callable[[], frozenset[agent_requests.JobAttempt]]
    """Returns the attempts that run on this node. May raise SlurmError."""
    stop_directory: Path
    clock: Clock
    log: Log
    notice: Notice | None = None
    drained: bool = False
    all_stops_requested: bool = False
    """Every job on a list that was read after the drain has its stop request."""
    _requested_attempts: set[agent_requests.JobAttempt] = field(default_factory=set)
    _early_reason: str = ""
    """Reason to drain the node before any notice; empty without one."""
    _early_drained: bool = False
    _events_read_at: float = float("-inf")

    def poll(self) -> None:
        """Read EC2's notices and act on them.

        Never raises: a step that failed is repeated at the next poll.
        """
        try:
            self._read_metadata()
        except MetadataError as error:
            self.log.warning(LogEvent.METADATA_QUERY_FAILED, message=error.message)
        if self.notice is not None:
            if not (self.drained and self.all_stops_requested):
                self._act_on_notice(self.notice)
        elif self._early_reason and not self._early_drained:
            self._early_drained = self._drain(self._early_reason)

    def _read_metadata(self) -> None:
        now = self.clock.now()
        if self.notice is None and (notice := interruption.spot(self.metadata, now)) is not None:
            self._record_notice(notice, now)
        if now - self._events_read_at >= EVENTS_SECONDS:
            self._read_scheduled_event(now)
            self._events_read_at = now
        if not self._early_reason and interruption.rebalance(self.metadata, now) is not None:
            self._early_reason = "rebalance recommended"
            self.log.warning(LogEvent.REBALANCE_RECOMMENDED)

    def _read_scheduled_event(self, now: float) -> None:
        event = interruption.scheduled(self.metadata, now)
        if event is None or self.notice is not None:
            return
        if event.deadline - now <= STOP_LEAD_SECONDS:
            self._record_notice(event, now)
        elif event.deadline - now <= EVENT_HORIZON and not self._early_reason:
            self._early_reason = f"scheduled {event.action}"
            self.log.warning(
                LogEvent.SCHEDULED_EVENT_ANNOUNCED, action=event.action, deadline=event.deadline
            )

    def _record_notice(self, notice: Notice, now: float) -> None:
        self.notice = notice
        self.log.warning(
            LogEvent.INTERRUPTION_ANNOUNCED,
            cause=notice.kind,
            action=notice.action,
            deadline=notice.deadline,
            seconds_left=round(notice.deadline - now, 1),
        )

    def _act_on_notice(self, notice: Notice) -> None:
        """Drain the node, and at once ask its jobs to stop.

        Each may take its whole time limit without delaying the other.
        """
        is_scheduled = notice.kind is Kind.SCHEDULED
        reason = f"scheduled {notice.action}" if is_scheduled else SPOT_INTERRUPTION

        def drain() -> None:
            self.drained = self._drain(reason)

        drain_thread = Thread(target=drain, daemon=True)
        if not self.drained:
            drain_thread.start()
        self._request_stops(notice)
        if drain_thread.ident is not None:
            drain_thread.join(DRAIN_SECONDS * 2)

    def _drain(self, reason: str) -> bool:
        try:
            self.slurm.drain([self.node], f"{REASON_PREFIX} {reason}")
        except SlurmError as error:
            self.log.failure(LogEvent.NODE_DRAIN_FAILED, message=error.message)
            return False
        self.log.info(LogEvent.NODE_DRAINED, why=reason)
        return True

    def _request_stops(self, notice: Notice) -> None:
        # Read before the job list: a job that starts after the list is asked at the next poll.
        drained = self.drained
        try:
            attempts = self.read_attempts()
        except SlurmError as error:
            self.log.failure(LogEvent.JOB_QUERY_FAILED, message=error.message)
            return
        all_written = True
        for attempt in sorted(attempts - self._requested_attempts):
            now = self.clock.now()
            try:
                agent_requests.request_stop(
                    self.stop_directory,
                    attempt,
                    notice,
                    node=self.node,
                    instance_id=self.instance_id,
                    now=now,
                )
            except OSError as error:
                all_written = False
                self.log.failure(LogEvent.STOP_REQUEST_FAILED, job=attempt[0], message=str(error))
                continue
            self._requested_attempts.add(attempt)
            self.log.info(LogEvent.STOP_REQUESTED, job=attempt[0], restart_count=attempt[1])
        self.all_stops_requested = all_written and drained


@dataclass(slots=True)
class Registrar:
    """The part of the agent that reloads slurmd when reconcile asks the node to register again."""

    node: str
    directory: Path
    runner: Runner
    log: Log
    _handled_request: str = ""

    def poll(self) -> None:
        """Reload slurmd once for each request. Never raises."""
        request = agent_requests.read_registration_request(self.directory, self.node)
        if not request or request == self._handled_request:
            return
        result = self.runner.run(RELOAD, timeout=RELOAD_SECONDS)
        if result.returncode:
            self.log.failure(LogEvent.SLURMD_RELOAD_FAILED, message=result.stderr.strip()[-200:])
            return
        self._handled_request = request
        agent_requests.remove_registration_request(self.directory, self.node)
        self.log.warning(LogEvent.SLURMD_RELOADED, why="slurmctld waits for this node")


@dataclass(frozen=True, slots=True)
class Followers:
    """The parts of the agent that follow files of the head's."""

    registrar: Registrar
    user_list: UserListFollower
    keys: KeyFollower


def watch(agent: Agent, followers: Followers, clock: Clock, log: Log) -> NoReturn:
    """Poll for as long as the node lives."""
    poll_numbers = itertools.count()
    while True:
        agent.poll()
        if next(poll_numbers) % POLLS_PER_USER_UPDATE == 0:
            followers.registrar.poll()
            try:
                followers.user_list.follow()
            except (EngineError, OSError) as error:
                log.warning(LogEvent.USERS_NOT_UPDATED, message=str(error))
            try:
                followers.keys.follow()
            except (EngineError, OSError) as error:
                log.warning(LogEvent.KEYS_NOT_TAKEN, message=str(error))
        clock.sleep(POLL_SECONDS)
