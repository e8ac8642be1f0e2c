"""The service on every compute node that hears of the machine's end and passes it on.

On a spot notice it drains the node, so that nothing new starts, and asks every job on it to stop,
through a file that the job's workers watch. The second does not wait for the first: a silent
slurmctld must not cost a checkpoint. What failed is tried again at each poll. It also keeps the
accounts of people in step with the cluster's list.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Final

from slurmplugins import interruption, node_config, node_jobs, paths, runtime, users
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
    from slurmplugins.slurm import Slurm

POLL_SECONDS: Final = 2.0
SLURM_SECONDS: Final = 5.0
"""The job must have heard within five seconds of the notice; slurmctld may not use them up."""

SLURM_BIN: Final = "/usr/bin"


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
    _rebalance_seen: bool = False

    def poll(self) -> None:
        """Look for a notice and act on it. Never raises; what failed is due at the next poll."""
        try:
            self._look()
        except MetadataError as error:
            self.log.warning("metadata", message=error.message)
        if self.notice is not None and not (self.drained and self.all_asked):
            self._act(self.notice)

    def _look(self) -> None:
        now = self.clock.now()
        if self.notice is None:
            self.notice = interruption.spot(self.metadata, now)
            if self.notice is not None:
                self.log.warning(
                    "interruption notice",
                    action=self.notice.action,
                    deadline=self.notice.deadline,
                    seconds_left=round(self.notice.deadline - now, 1),
                )
        if not self._rebalance_seen and interruption.rebalance(self.metadata, now) is not None:
            self._rebalance_seen = True
            self.log.warning("rebalance recommendation")

    def _act(self, notice: Notice) -> None:
        """Drain beside asking: each may take its whole time limit without delaying the other."""
        drain = Thread(target=self._drain, daemon=True)
        if not self.drained:
            drain.start()
        self._ask_jobs(notice)
        if drain.ident is not None:
            drain.join(SLURM_SECONDS * 2)

    def _drain(self) -> None:
        try:
            self.slurm.drain([self.node], f"{REASON_PREFIX} spot interruption")
            self.drained = True
            self.log.info("drained")
        except SlurmError as error:
            self.log.problem("drain failed", message=error.message)

    def _ask_jobs(self, notice: Notice) -> None:
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
        # Until the node is drained a new job may still start here.
        self.all_asked = complete and self.drained


def main() -> None:
    log = runtime.logger("node-agent")

    def work() -> None:
        settings = node_config.load()
        facts = json.loads(paths.INSTANCE.read_text(encoding="utf-8"))
        clock, runner = SystemClock(), SystemRunner()
        slurm = ScontrolSlurm(runner, SLURM_BIN, timeout=SLURM_SECONDS)
        node = str(facts["node"])
        agent = Agent(
            node=node,
            instance_id=str(facts["instance_id"]),
            metadata=Imds(HttpTransport(), clock),
            slurm=slurm,
            jobs=lambda: node_jobs.attempts(slurm, runner, SLURM_BIN, node, paths.PROC),
            stop_directory=paths.stop_requests(settings.shared.path),
            clock=clock,
            log=log.bind(node=node),
        )
        people = users.Follower(paths.users_file(settings.shared.path), runner)
        log.info("watching", node=node)
        while True:
            agent.poll()
            try:
                people.follow()
            except (EngineError, OSError) as error:
                log.warning("users", message=str(error))
            clock.sleep(POLL_SECONDS)

    raise SystemExit(runtime.guarded(log, work))


if __name__ == "__main__":
    main()
