"""Pass on EC2's notices about this instance's end, and the head's requests to slurmd."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Final, NoReturn

from slurmplugins.errors import EngineError, MetadataError, SlurmError
from slurmplugins.model.instance import EVENT_HORIZON
from slurmplugins.model.interruption import Kind
from slurmplugins.model.node import REASON_PREFIX
from slurmplugins.node import interruption
from slurmplugins.slurm import agent_requests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.model.interruption import Notice
    from slurmplugins.node.imds import Metadata
    from slurmplugins.node.users import Follower
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.command import Runner
    from slurmplugins.system.logger import Log


POLL_SECONDS: Final = 1.0

PEOPLE_EVERY: Final = 5
"""Polls between two looks at the list of users, and for a request to register."""

JOBS_SECONDS: Final = 2.0
DRAIN_SECONDS: Final = 4.0
"""Seconds slurmctld has to drain the node. The job must hear within five seconds of the notice, and
slurmctld may not use them up."""

EVENTS_EVERY: Final = 30.0
"""Seconds between two looks at scheduled events. EC2 announces them hours to weeks ahead."""

STOP_AHEAD: Final = 600.0
"""Seconds before a scheduled event that jobs have to save."""

RELOAD: Final = ("/usr/bin/systemctl", "reload", "slurmd.service")
RELOAD_SECONDS: Final = 30.0
"""Time limit of the reload. systemd only sends a signal, and slurmd does the rest by itself."""


@dataclass(slots=True)
class Agent:
    """The agent of one compute node: it hears notices, drains the node, and asks jobs to stop."""

    node: str
    instance_id: str
    metadata: Metadata
    slurm: Slurm
    jobs: Callable[[], frozenset[agent_requests.JobAttempt]]
    """Lists the attempts on this node. May raise SlurmError."""
    stop_directory: Path
    clock: Clock
    log: Log
    notice: Notice | None = None
    drained: bool = False
    all_asked: bool = False
    """Every job was asked, from a list that was read after the node was drained."""
    _asked: set[agent_requests.JobAttempt] = field(default_factory=set)
    _warning: str = ""
    _warned: bool = False
    _events_at: float = float("-inf")

    def poll(self) -> None:
        """Look for news and act on it.

        Never raises: a step that failed is repeated at the next poll.
        """
        try:
            self._look()
        except MetadataError as error:
            self.log.warning("metadata", message=error.message)
        if self.notice is not None:
            if not (self.drained and self.all_asked):
                self._act(self.notice)
        elif self._warning and not self._warned:
            self._warned = self._drain(self._warning)

    def _look(self) -> None:
        now = self.clock.now()
        if self.notice is None and (found := interruption.spot(self.metadata, now)) is not None:
            self._notice(found, now)
        if now - self._events_at >= EVENTS_EVERY:
            self._look_ahead(now)
            self._events_at = now
        if not self._warning and interruption.rebalance(self.metadata, now) is not None:
            self._warning = "rebalance recommended"
            self.log.warning("rebalance recommendation")

    def _look_ahead(self, now: float) -> None:
        event = interruption.scheduled(self.metadata, now)
        if event is None or self.notice is not None:
            return
        if event.deadline - now <= STOP_AHEAD:
            self._notice(event, now)
        elif event.deadline - now <= EVENT_HORIZON and not self._warning:
            self._warning = f"scheduled {event.action}"
            self.log.warning("scheduled event", action=event.action, deadline=event.deadline)

    def _notice(self, notice: Notice, now: float) -> None:
        self.notice = notice
        self.log.warning(
            "interruption notice",
            cause=notice.kind,
            action=notice.action,
            deadline=notice.deadline,
            seconds_left=round(notice.deadline - now, 1),
        )

    def _act(self, notice: Notice) -> None:
        """Drain the node and ask its jobs, at the same time.

        Each may take its whole time limit without delaying the other.
        """
        scheduled = notice.kind is Kind.SCHEDULED
        why = f"scheduled {notice.action}" if scheduled else "spot interruption"

        def drain() -> None:
            self.drained = self._drain(why)

        beside = Thread(target=drain, daemon=True)
        if not self.drained:
            beside.start()
        self._ask_jobs(notice)
        if beside.ident is not None:
            beside.join(DRAIN_SECONDS * 2)

    def _drain(self, why: str) -> bool:
        try:
            self.slurm.drain([self.node], f"{REASON_PREFIX} {why}")
        except SlurmError as error:
            self.log.problem("drain failed", message=error.message)
            return False
        self.log.info("drained", why=why)
        return True

    def _ask_jobs(self, notice: Notice) -> None:
        # Read before the list: a job may start between the list and the end of the drain.
        drained = self.drained
        try:
            attempts = self.jobs()
        except SlurmError as error:
            self.log.problem("jobs unknown", message=error.message)
            return
        complete = True
        for attempt in sorted(attempts - self._asked):
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
                complete = False
                self.log.problem("stop request failed", job=attempt[0], message=str(error))
                continue
            self._asked.add(attempt)
            self.log.info("stop requested", job=attempt[0], restart_count=attempt[1])
        self.all_asked = complete and drained


@dataclass(slots=True)
class Registrar:
    """Has this node's slurmd register again when reconcile asks for it."""

    node: str
    directory: Path
    runner: Runner
    log: Log
    _done: str = ""

    def poll(self) -> None:
        """Reload slurmd once for each request. Never raises."""
        asked = agent_requests.requested_registration(self.directory, self.node)
        if not asked or asked == self._done:
            return
        done = self.runner.run(RELOAD, timeout=RELOAD_SECONDS)
        if done.returncode:
            self.log.problem("slurmd not reloaded", message=done.stderr.strip()[-200:])
            return
        self._done = asked
        agent_requests.forget_registration(self.directory, self.node)
        self.log.warning("slurmd registers again", why="slurmctld waits for this node")


def watch(agent: Agent, registrar: Registrar, people: Follower, clock: Clock, log: Log) -> NoReturn:
    """Poll for as long as the node lives."""
    turns = itertools.count()
    while True:
        agent.poll()
        if next(turns) % PEOPLE_EVERY == 0:
            registrar.poll()
            try:
                people.follow()
            except (EngineError, OSError) as error:
                log.warning("users", message=str(error))
        clock.sleep(POLL_SECONDS)
