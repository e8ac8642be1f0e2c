"""Run actions on EC2 and Slurm; an action that fails never stops the others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import SlurmError
from slurmplugins.execution.job_notices import JobNotifier
from slurmplugins.execution.slurm_calls import SlurmCalls, all_nodes
from slurmplugins.execution.termination import Terminator
from slurmplugins.model import hostlist
from slurmplugins.model.actions import (
    Drain,
    Outcome,
    PowerUp,
    Register,
    RequestStop,
    ReturnToService,
    Terminate,
)
from slurmplugins.model.instance import NOTICE_SECONDS, Kind, Notice
from slurmplugins.model.node import REASON_PREFIX
from slurmplugins.slurm import agent_requests
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set as AbstractSet
    from pathlib import Path

    from slurmplugins.cloud.port import Cloud
    from slurmplugins.model.actions import Action
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.state.journal import Journal
    from slurmplugins.state.launch_budget_file import LaunchBudget
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log

NOTICE_DELAY: Final = 30.0
"""Seconds of a spot notice that may have passed when the head reacts: two passes of reconcile."""


class Executor:
    """Carries out actions, and logs each of them and each failure."""

    def __init__(
        self,
        *,
        cloud: Cloud,
        slurm: Slurm,
        journal: Journal,
        clock: Clock,
        log: Log,
        stop_requests: Path,
        launch_budget: LaunchBudget,
    ) -> None:
        self._terminator = Terminator(cloud, journal, clock, log, launch_budget)
        self._notifier = JobNotifier(slurm, log)
        self._slurm = slurm
        self._clock = clock
        self._log = log
        self._stop_requests = stop_requests

    def run(
        self,
        actions: Sequence[Action],
        still_valid: Callable[[Sequence[NodeName]], AbstractSet[NodeName]] = all_nodes,
    ) -> tuple[Outcome, ...]:
        """Carry out all actions, grouped into few calls.

        The order is that of the list below. A job leaves its node before the node is powered down.
        Terminations come last: EC2 may take minutes, and facts about nodes change meanwhile.

        `still_valid` is described at SlurmCalls. Returns one outcome per action that was tried.
        """
        slurm, calls = self._slurm, SlurmCalls(self._slurm, self._log, still_valid)
        comments: dict[int, Callable[[], None]] = {}
        request_stops = partial(self._request_job_stops, comments)
        outcomes = [
            *calls.mark_down(actions),
            *calls.run_by_reason(actions, Drain, slurm.drain),
            *calls.run_by_reason(actions, RequestStop, request_stops),
            *calls.run(
                [a for a in actions if isinstance(a, Register)], self._request_registrations
            ),
            *calls.power_down(actions),
            *calls.run([a for a in actions if isinstance(a, ReturnToService)], slurm.resume),
            *calls.run([a for a in actions if isinstance(a, PowerUp)], slurm.power_up),
        ]
        self._notifier.notify_each(comments)
        outcomes += self._terminate([a for a in actions if isinstance(a, Terminate)])
        return tuple(outcomes)

    def _terminate(self, actions: Sequence[Terminate]) -> list[Outcome]:
        outcomes = self._terminator.run(actions)
        for action, outcome in zip(actions, outcomes, strict=True):
            if outcome.error:
                self._log.failure(
                    LogEvent.ACTION_FAILED,
                    error=outcome.error,
                    action=type(action).__name__,
                    instance=action.instance.id,
                    node=action.instance.node,
                )
        return outcomes

    def _request_job_stops(
        self, comments: dict[int, Callable[[], None]], nodes: Sequence[NodeName], reason: str
    ) -> None:
        """Ask the nodes' jobs to stop, as the nodes' agents would.

        The request is a file, which harms no job that does not look for it. The nodes are drained
        after all files are written. If writing fails, the next pass tries again.
        Adds to `comments` the calls that then notify the jobs.
        """
        now = self._clock.now()
        notice = Notice(Kind.SPOT, "terminate", now + NOTICE_SECONDS - NOTICE_DELAY)
        new_comments: dict[int, Callable[[], None]] = {}
        for job in self._slurm.jobs(nodes):
            job_nodes = hostlist.expand(job.nodes, invalid_names=[]) if job.running else ()
            affected_nodes = hostlist.order(set(nodes).intersection(job_nodes))
            if affected_nodes:
                self._write_stop_request((job.id, job.restarts), notice, affected_nodes[0], now)
                node_list = hostlist.compress(affected_nodes)
                text = f"{REASON_PREFIX} asked to save and stop: EC2 interrupts {node_list}"
                new_comments[job.id] = partial(self._notifier.comment, job.id, text)
        self._slurm.drain(nodes, reason)
        comments.update(new_comments)

    def _request_registrations(self, nodes: Sequence[NodeName]) -> None:
        """Leave a request for each node's agent to have slurmd register."""
        folder, now = self._stop_requests, self._clock.now()
        try:
            for node in nodes:
                agent_requests.request_registration(folder, node, now)
        except OSError as error:
            text = f"can't write a registration request in {folder}: {error.strerror}"
            raise SlurmError(text) from error

    def _write_stop_request(
        self, attempt: agent_requests.JobAttempt, notice: Notice, node: NodeName, now: float
    ) -> None:
        folder = self._stop_requests
        try:
            agent_requests.request_stop(folder, attempt, notice, node=node, instance_id="", now=now)
        except OSError as error:
            raise SlurmError(f"can't write a stop request in {folder}: {error.strerror}") from error
