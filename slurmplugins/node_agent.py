"""The service on every compute node that hears of the machine's end and passes it on.

On a spot notice, and ten minutes before a scheduled event, it drains the node, so that nothing new
starts, and asks every job on it to stop, through a file that the job's workers watch. The second
does not wait for the first: a silent slurmctld must not cost a checkpoint. What failed is tried
again at each poll. On a rebalance recommendation, and from a day before a scheduled event, it only
drains: the jobs go on, and the machine is replaced when they have left. It also keeps the accounts
of people in step with the cluster's list.

From notice to stop request: a poll (1 s), then at most two seconds for slurmctld to name the jobs;
after that slurmd and the processes here do.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Final

from slurmplugins import (
    health,
    interruption,
    node_config,
    node_jobs,
    paths,
    registering,
    runtime,
    safe_json,
    users,
)
from slurmplugins.clock import SystemClock
from slurmplugins.errors import EngineError, MetadataError, SlurmError
from slurmplugins.imds import HttpTransport, Imds
from slurmplugins.model import REASON_PREFIX
from slurmplugins.runner import SystemRunner
from slurmplugins.slurm import ScontrolSlurm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.clock import Clock
    from slurmplugins.imds import Metadata
    from slurmplugins.interruption import Notice
    from slurmplugins.log import Log
    from slurmplugins.runner import Runner
    from slurmplugins.slurm import Slurm

POLL_SECONDS: Final = 1.0
JOBS_SECONDS: Final = 2.0
DRAIN_SECONDS: Final = 4.0
"""The job must have heard within five seconds of the notice; slurmctld may not use them up."""

EVENTS_EVERY: Final = 30.0
"""Scheduled events are announced hours to weeks ahead."""

STOP_AHEAD: Final = 600.0
"""Before a scheduled event, jobs have this long to save."""

PEOPLE_EVERY: Final = 5
"""Polls between two looks at the list of people, and for a request to register."""

RELOAD: Final = ("/usr/bin/systemctl", "reload", "slurmd.service")
RELOAD_SECONDS: Final = 30.0
"""systemd only sends a signal, and slurmd does the rest by itself."""

OLD_REQUEST: Final = 24 * 3600.0
"""A stop request is about an attempt that ended within minutes of it."""


@dataclass(slots=True)
class Agent:
    """`jobs` lists the attempts on this node; `poll` is one turn of the loop."""

    node: str
    instance_id: str
    metadata: Metadata
    slurm: Slurm
    jobs: Callable[[], frozenset[node_jobs.JobAttempt]]
    stop_directory: Path
    clock: Clock
    log: Log
    notice: Notice | None = None
    drained: bool = False
    all_asked: bool = False
    _asked: set[node_jobs.JobAttempt] = field(default_factory=set)
    _warning: str = ""
    _warned: bool = False
    _events_at: float = float("-inf")

    def poll(self) -> None:
        """Look for news and act on it. Never raises; what failed is due at the next poll."""
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
        elif event.deadline - now <= health.EVENT_HORIZON and not self._warning:
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
        """Drain beside asking: each may take its whole time limit without delaying the other."""
        scheduled = notice.kind is interruption.Kind.SCHEDULED
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
        # Before the list: a job may start after it and before the drain, which ends meanwhile.
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
                node_jobs.request_stop(
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
        asked = registering.requested(self.directory, self.node)
        if not asked or asked == self._done:
            return
        done = self.runner.run(RELOAD, timeout=RELOAD_SECONDS)
        if done.returncode:
            self.log.problem("slurmd not reloaded", message=done.stderr.strip()[-200:])
            return
        self._done = asked
        registering.forget(self.directory, self.node)
        self.log.warning("slurmd registers again", why="slurmctld waits for this node")


def main() -> None:
    log = runtime.logger("node-agent")

    def work() -> None:
        settings = node_config.load()
        facts = safe_json.loads(paths.INSTANCE.read_text(encoding="utf-8"))
        clock, runner = SystemClock(), SystemRunner()
        slurm = ScontrolSlurm(runner, paths.SLURM_BIN, timeout=DRAIN_SECONDS)
        asked = ScontrolSlurm(runner, paths.SLURM_BIN, timeout=JOBS_SECONDS)
        node = str(facts["node"])
        requests = paths.stop_requests(settings.shared.path)
        agent = Agent(
            node=node,
            instance_id=str(facts["instance_id"]),
            metadata=Imds(HttpTransport(), clock),
            slurm=slurm,
            jobs=lambda: node_jobs.attempts(asked, runner, paths.SLURM_BIN, node, paths.PROC),
            stop_directory=requests,
            clock=clock,
            log=log.bind(node=node),
        )
        registrar = Registrar(node, requests, runner, log.bind(node=node))
        people = users.Follower(paths.users_file(settings.shared.path), runner)
        log.info("watching", node=node)
        node_jobs.forget_requests(requests, clock.now() - OLD_REQUEST)
        for turn in itertools.count():
            agent.poll()
            if turn % PEOPLE_EVERY == 0:
                registrar.poll()
                try:
                    people.follow()
                except (EngineError, OSError) as error:
                    log.warning("users", message=str(error))
            clock.sleep(POLL_SECONDS)

    raise SystemExit(runtime.guarded(log, work))


if __name__ == "__main__":
    main()
