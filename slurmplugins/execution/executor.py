"""Run actions on EC2 and Slurm; an action that fails never stops the others."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from slurmplugins.errors import EngineError, SlurmError, SlurmRefused
from slurmplugins.execution.job_notices import Teller
from slurmplugins.execution.termination import Ends
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
from slurmplugins.model.interruption import NOTICE_SECONDS, Kind, Notice
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
    from slurmplugins.state.launch_budget_file import Brake
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log

HEARD_AFTER: Final = 30.0
"""Seconds of a spot notice that have passed when the head asks for the node. It sees the notice one
pass late."""

_OnNode = MarkDown | Drain | RequestStop | Register | PowerDown | ReturnToService | PowerUp
_Reasoned = TypeVar("_Reasoned", MarkDown, Drain, RequestStop)


def _all(nodes: Sequence[NodeName]) -> AbstractSet[NodeName]:
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
        brake: Brake,
    ) -> None:
        self._ends = Ends(cloud, journal, clock, log, brake)
        self._teller = Teller(slurm, log)
        self._slurm = slurm
        self._journal = journal
        self._clock = clock
        self._log = log
        self._stop_requests = stop_requests
        self._brake = brake

    def run(
        self,
        actions: Sequence[Action],
        fit: Callable[[Sequence[NodeName]], AbstractSet[NodeName]] = _all,
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

        def tell(group: Sequence[_OnNode], call: Callable[[Sequence[NodeName]], None]) -> None:
            outcomes.extend(self._slurm_call(group, call, fit))

        for reason, group in _by_reason(actions, MarkDown).items():
            tell(group, partial(self._slurm.down, reason=reason))
        for reason, drains in _by_reason(actions, Drain).items():
            tell(drains, partial(self._slurm.drain, reason=reason))
        for reason, asks in _by_reason(actions, RequestStop).items():
            tell(asks, partial(self._ask_jobs, comments, reason=reason))
        tell([item for item in actions if isinstance(item, Register)], self._ask_registrations)
        tell([item for item in actions if isinstance(item, PowerDown)], self._slurm.power_down)
        tell([item for item in actions if isinstance(item, ReturnToService)], self._slurm.resume)
        tell([item for item in actions if isinstance(item, PowerUp)], self._slurm.power_up)
        self._teller.all(comments)
        ends = [item for item in actions if isinstance(item, Terminate)]
        ended = self._ends.run(ends)
        for outcome in ended:
            if outcome.error:
                self._log.problem("action failed", error=outcome.error, **_whose(outcome.action))
        return (*outcomes, *ended)

    def _ask_jobs(
        self, comments: dict[int, Callable[[], None]], nodes: Sequence[NodeName], reason: str
    ) -> None:
        """Ask the nodes' jobs to stop, as the nodes' agents would.

        The request is a file, which harms no job that does not look for it. The nodes' reason
        changes only after all files are there: a failure before that is repeated by the next pass.
        Adds to `comments` the calls that then tell the jobs.
        """
        now = self._clock.now()
        notice = Notice(Kind.SPOT, "terminate", now + NOTICE_SECONDS - HEARD_AFTER)
        asked: dict[int, Callable[[], None]] = {}
        for job in self._slurm.jobs(nodes):
            going = (
                set(nodes).intersection(hostlist.expand(job.nodes, odd=[])) if job.running else ()
            )
            if going:
                self._request_stop((job.id, job.restarts), notice, hostlist.order(going)[0], now)
                text = f"{REASON_PREFIX} asked to save and stop: {hostlist.compress(going)} goes"
                asked[job.id] = partial(self._teller.comment, job.id, text)
        self._slurm.drain(nodes, reason)
        comments.update(asked)

    def _ask_registrations(self, nodes: Sequence[NodeName]) -> None:
        """Leave a request for each node's agent to have slurmd register."""
        place, now = self._stop_requests, self._clock.now()
        try:
            for node in nodes:
                agent_requests.request_registration(place, node, now)
        except OSError as error:
            raise SlurmError(f"no request in {place}: {error.strerror}") from error

    def _request_stop(
        self, attempt: agent_requests.JobAttempt, notice: Notice, node: NodeName, now: float
    ) -> None:
        place = self._stop_requests
        try:
            agent_requests.request_stop(place, attempt, notice, node=node, instance_id="", now=now)
        except OSError as error:
            raise SlurmError(f"no stop request in {place}: {error.strerror}") from error

    def _slurm_call(
        self,
        actions: Sequence[_OnNode],
        call: Callable[[Sequence[NodeName]], None],
        fit: Callable[[Sequence[NodeName]], AbstractSet[NodeName]],
    ) -> list[Outcome]:
        """Log the actions that still fit, and make one call for all.

        Many nodes share a line of the log. With a line each, thousands of nodes would push the past
        out of the decision log.
        """
        told = _fitting(actions, fit)
        whys: dict[str, list[NodeName]] = defaultdict(list)
        for action in told:
            whys[_why(action)].append(action.node)
        for why, nodes in whys.items():
            kind = type(told[0]).__name__
            self._log.info("node", action=kind, nodes=hostlist.compress(nodes), why=why)
        return self._by_halves(told, call, fit)

    def _by_halves(
        self,
        told: Sequence[_OnNode],
        call: Callable[[Sequence[NodeName]], None],
        fit: Callable[[Sequence[NodeName]], AbstractSet[NodeName]],
    ) -> list[Outcome]:
        """Call Slurm for all nodes, and by halves where it refuses.

        Halving keeps one bad node from failing the others. A call without an answer is not halved:
        each half would wait as long and get none either.
        """
        if not told:
            return []
        nodes = [item.node for item in told]
        try:
            call(nodes)
        except EngineError as error:
            if isinstance(error, SlurmRefused) and len(told) > 1:
                middle = len(told) // 2
                halves = [_fitting(half, fit) for half in (told[:middle], told[middle:])]
                return [item for half in halves for item in self._by_halves(half, call, fit)]
            kind = type(told[0]).__name__
            said = error.message
            self._log.problem(
                "action failed", action=kind, nodes=hostlist.compress(nodes), error=said
            )
            return [Outcome(item, said) for item in told]
        return [Outcome(item) for item in told]


def _fitting(
    actions: Sequence[_OnNode], fit: Callable[[Sequence[NodeName]], AbstractSet[NodeName]]
) -> list[_OnNode]:
    fitting = fit([item.node for item in actions]) if actions else frozenset()
    return [item for item in actions if item.node in fitting]


def _by_reason(actions: Sequence[Action], kind: type[_Reasoned]) -> dict[str, list[_Reasoned]]:
    grouped: dict[str, list[_Reasoned]] = defaultdict(list)
    for action in actions:
        if isinstance(action, kind):
            grouped[action.reason].append(action)
    return grouped


def _whose(action: Action) -> dict[str, str | None]:
    instance = action.instance if isinstance(action, Terminate) else None
    node, key = (instance.node, instance.id) if instance else (None, None)
    return {"action": type(action).__name__, "instance": key, "node": node}


def _why(action: _OnNode) -> str:
    return action.reason if isinstance(action, MarkDown | Drain | RequestStop) else action.why
