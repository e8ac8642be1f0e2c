"""Run actions on EC2 and Slurm; an action that fails never stops the others."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from slurmplugins.errors import EngineError, SlurmError, SlurmRefused
from slurmplugins.execution.job_notices import JobNotifier
from slurmplugins.execution.termination import Terminator
from slurmplugins.model import hostlist
from slurmplugins.model.actions import (
    Drain,
    MarkDown,
    Outcome,
    PowerDown,
    PowerUp,
    Register,
    RequestStop,
    ReturnToService,
    Terminate,
)
from slurmplugins.model.instance import NOTICE_SECONDS, Kind, Notice
from slurmplugins.model.node import REASON_PREFIX
from slurmplugins.slurm import agent_requests

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
"""Seconds of a spot notice that have passed when the head asks for the node. It sees the notice one
pass late."""

_OnNode = MarkDown | Drain | RequestStop | Register | PowerDown | ReturnToService | PowerUp
_Reasoned = TypeVar("_Reasoned", MarkDown, Drain, RequestStop)


def _all_nodes(nodes: Sequence[NodeName]) -> AbstractSet[NodeName]:
    return frozenset(nodes)


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
        self._journal = journal
        self._clock = clock
        self._log = log
        self._stop_requests = stop_requests
        self._launch_budget = launch_budget

    def run(
        self,
        actions: Sequence[Action],
        still_valid: Callable[[Sequence[NodeName]], AbstractSet[NodeName]] = _all_nodes,
    ) -> tuple[Outcome, ...]:
        """Carry out all actions, grouped into few calls.

        The order is: nodes DOWN, power down, return to service, then terminate instances. It lets a
        job leave its node before the node is powered down. A node returns to service only after
        everything else about it was said. Terminations come last, since EC2 may keep us waiting for
        minutes. Facts about nodes change in that time.

        `fit` is asked before each call to Slurm. It returns the nodes for which the actions still
        hold; the others are left alone.

        Returns one outcome per action that was tried.
        """
        outcomes: list[Outcome] = []
        comments: dict[int, Callable[[], None]] = {}

        def call_slurm(
            group: Sequence[_OnNode], call: Callable[[Sequence[NodeName]], None]
        ) -> None:
            outcomes.extend(self._call_slurm(group, call, still_valid))

        for reason, group in _by_reason(actions, MarkDown).items():
            call_slurm(group, partial(self._slurm.down, reason=reason))
        for reason, drains in _by_reason(actions, Drain).items():
            call_slurm(drains, partial(self._slurm.drain, reason=reason))
        for reason, stop_requests in _by_reason(actions, RequestStop).items():
            call_slurm(stop_requests, partial(self._request_job_stops, comments, reason=reason))
        call_slurm(
            [item for item in actions if isinstance(item, Register)], self._request_registrations
        )
        call_slurm(
            [item for item in actions if isinstance(item, PowerDown)], self._slurm.power_down
        )
        call_slurm(
            [item for item in actions if isinstance(item, ReturnToService)], self._slurm.resume
        )
        call_slurm([item for item in actions if isinstance(item, PowerUp)], self._slurm.power_up)
        self._notifier.notify_each(comments)
        terminations = [item for item in actions if isinstance(item, Terminate)]
        termination_outcomes = self._terminator.run(terminations)
        for outcome in termination_outcomes:
            if outcome.error:
                self._log.failure(
                    "action failed", error=outcome.error, **_instance_fields(outcome.action)
                )
        return (*outcomes, *termination_outcomes)

    def _request_job_stops(
        self, comments: dict[int, Callable[[], None]], nodes: Sequence[NodeName], reason: str
    ) -> None:
        """Ask the nodes' jobs to stop, as the nodes' agents would.

        The request is a file, which harms no job that does not look for it. The nodes' reason
        changes only after all files are there: a failure before that is repeated by the next pass.
        Adds to `comments` the calls that then tell the jobs.
        """
        now = self._clock.now()
        notice = Notice(Kind.SPOT, "terminate", now + NOTICE_SECONDS - NOTICE_DELAY)
        new_comments: dict[int, Callable[[], None]] = {}
        for job in self._slurm.jobs(nodes):
            affected_nodes = (
                set(nodes).intersection(hostlist.expand(job.nodes, invalid_names=[]))
                if job.running
                else ()
            )
            if affected_nodes:
                self._write_stop_request(
                    (job.id, job.restarts), notice, hostlist.order(affected_nodes)[0], now
                )
                text = f"{REASON_PREFIX} asked to save and stop: {hostlist.compress(affected_nodes)} goes"
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
            raise SlurmError(f"no request in {folder}: {error.strerror}") from error

    def _write_stop_request(
        self, attempt: agent_requests.JobAttempt, notice: Notice, node: NodeName, now: float
    ) -> None:
        folder = self._stop_requests
        try:
            agent_requests.request_stop(folder, attempt, notice, node=node, instance_id="", now=now)
        except OSError as error:
            raise SlurmError(f"no stop request in {folder}: {error.strerror}") from error

    def _call_slurm(
        self,
        actions: Sequence[_OnNode],
        call: Callable[[Sequence[NodeName]], None],
        still_valid: Callable[[Sequence[NodeName]], AbstractSet[NodeName]],
    ) -> list[Outcome]:
        """Log the actions that still fit, and make one call for all.

        Many nodes share a line of the log. With a line each, thousands of nodes would push the past
        out of the decision log.
        """
        valid_actions = _valid_actions(actions, still_valid)
        nodes_by_why: dict[str, list[NodeName]] = defaultdict(list)
        for action in valid_actions:
            nodes_by_why[_why(action)].append(action.node)
        for why, nodes in nodes_by_why.items():
            kind = type(valid_actions[0]).__name__
            self._log.info("node", action=kind, nodes=hostlist.compress(nodes), why=why)
        return self._call_by_halves(valid_actions, call, still_valid)

    def _call_by_halves(
        self,
        valid_actions: Sequence[_OnNode],
        call: Callable[[Sequence[NodeName]], None],
        still_valid: Callable[[Sequence[NodeName]], AbstractSet[NodeName]],
    ) -> list[Outcome]:
        """Call Slurm for all nodes, and by halves where it refuses.

        Halving keeps one bad node from failing the others. A call without an answer is not halved:
        each half would wait as long and get none either.
        """
        if not valid_actions:
            return []
        nodes = [item.node for item in valid_actions]
        try:
            call(nodes)
        except EngineError as error:
            if isinstance(error, SlurmRefused) and len(valid_actions) > 1:
                middle = len(valid_actions) // 2
                halves = [
                    _valid_actions(half, still_valid)
                    for half in (valid_actions[:middle], valid_actions[middle:])
                ]
                return [
                    item
                    for half in halves
                    for item in self._call_by_halves(half, call, still_valid)
                ]
            kind = type(valid_actions[0]).__name__
            message = error.message
            self._log.failure(
                "action failed", action=kind, nodes=hostlist.compress(nodes), error=message
            )
            return [Outcome(item, message) for item in valid_actions]
        return [Outcome(item) for item in valid_actions]


def _valid_actions(
    actions: Sequence[_OnNode], still_valid: Callable[[Sequence[NodeName]], AbstractSet[NodeName]]
) -> list[_OnNode]:
    valid_nodes = still_valid([item.node for item in actions]) if actions else frozenset()
    return [item for item in actions if item.node in valid_nodes]


def _by_reason(actions: Sequence[Action], kind: type[_Reasoned]) -> dict[str, list[_Reasoned]]:
    grouped: dict[str, list[_Reasoned]] = defaultdict(list)
    for action in actions:
        if isinstance(action, kind):
            grouped[action.reason].append(action)
    return grouped


def _instance_fields(action: Action) -> dict[str, str | None]:
    instance = action.instance if isinstance(action, Terminate) else None
    node, key = (instance.node, instance.id) if instance else (None, None)
    return {"action": type(action).__name__, "instance": key, "node": node}


def _why(action: _OnNode) -> str:
    return action.reason if isinstance(action, MarkDown | Drain | RequestStop) else action.why
