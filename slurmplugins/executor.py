"""Runs actions against the cloud and Slurm. One that fails never stops the others."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from slurmplugins import names, node_jobs
from slurmplugins.actions import (
    AskJobs,
    Drain,
    MarkDown,
    Outcome,
    PowerDown,
    PowerUp,
    Reopen,
    Terminate,
)
from slurmplugins.errors import CloudError, EngineError, SlurmError, StateError
from slurmplugins.interruption import NOTICE_SECONDS, Kind, Notice
from slurmplugins.model import REASON_PREFIX
from slurmplugins.slurm import awaited

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from slurmplugins.actions import Action
    from slurmplugins.clock import Clock
    from slurmplugins.cloud.base import Cloud
    from slurmplugins.journal import Journal
    from slurmplugins.log import Log
    from slurmplugins.model import EndCause, Failure
    from slurmplugins.names import NodeName
    from slurmplugins.slurm import Slurm

VERIFY_TRIES: Final = 3
VERIFY_PAUSE: Final = 2.0
"""The first answer has the new state; a second look is for throttles and lost answers."""

READ_TRIES: Final = 3
READ_PAUSE: Final = 1.0

HEARD_AFTER: Final = 30.0
"""Seconds of a notice that are gone when the head, which sees it a pass late, asks for the node."""

END_BATCH: Final = 200
"""Machines in one call. EC2 takes 1,000, of which a throttled call ends none."""

END_SECONDS: Final = 120.0
"""How long one program goes on; the reconcile timer's pass may take 300 s in all."""

_OnNode = MarkDown | Drain | AskJobs | PowerDown | Reopen | PowerUp
_Reasoned = TypeVar("_Reasoned", MarkDown, Drain, AskJobs)


def _all(nodes: Sequence[NodeName]) -> Collection[NodeName]:
    return nodes


class Executor:
    def __init__(
        self,
        *,
        cloud: Cloud,
        slurm: Slurm,
        journal: Journal,
        clock: Clock,
        log: Log,
        stop_requests: Path,
    ) -> None:
        self._cloud = cloud
        self._slurm = slurm
        self._journal = journal
        self._clock = clock
        self._log = log
        self._stop_requests = stop_requests

    def run(
        self,
        actions: Sequence[Action],
        fit: Callable[[Sequence[NodeName]], Collection[NodeName]] = _all,
    ) -> tuple[Outcome, ...]:
        """Do them all, grouped into few calls: nodes down, power down, reopen; then end machines.

        That order lets a job leave its node before the node is powered down, and a node be
        reopened only after everything else about it was said. Machines come last, since EC2 may
        keep us waiting for minutes, in which what is true of nodes changes. `fit`, asked before
        each call to Slurm, says of which nodes the actions still hold; the others are left alone.
        """
        outcomes: list[Outcome] = []

        def tell(group: Sequence[_OnNode], call: Callable[[Sequence[NodeName]], None]) -> None:
            outcomes.extend(self._slurm_call(group, call, fit))

        for reason, group in _by_reason(actions, MarkDown).items():
            tell(group, partial(self._slurm.down, reason=reason))
        for reason, drains in _by_reason(actions, Drain).items():
            tell(drains, partial(self._slurm.drain, reason=reason))
        for reason, asks in _by_reason(actions, AskJobs).items():
            tell(asks, partial(self._ask_jobs, reason=reason))
        tell([item for item in actions if isinstance(item, PowerDown)], self._slurm.power_down)
        tell([item for item in actions if isinstance(item, Reopen)], self._slurm.resume)
        tell([item for item in actions if isinstance(item, PowerUp)], self._slurm.power_up)
        outcomes += self._terminate([item for item in actions if isinstance(item, Terminate)])
        return tuple(outcomes)

    def give_back(self, failures: Sequence[Failure], run: str = "") -> None:
        """Return nodes that can't be had to Slurm at once, tell the jobs why, and hold those that
        would only fail again. What came up meanwhile on a machine that stays, or is at work for a
        run other than `run`, is nobody's failure.
        """
        if not failures:
            return
        waiting = self._gone(failures)
        unread = waiting is None
        waiting = (waiting or frozenset()) - self._others(run)
        actions: list[Action] = []
        told: list[Failure] = []
        for failure in failures:
            nodes = [node for node in failure.nodes if node in waiting]
            actions += [MarkDown(node, failure.reason) for node in nodes]
            actions += [PowerDown(node, failure.reason) for node in nodes]
            told += [failure] if nodes or unread else []
            self._log.warning(
                "nodes given back" if nodes else "no longer waited for",
                job=failure.job,
                nodes=names.compress(nodes or failure.nodes),
                slug=failure.slug,
                code=failure.code,
                message=failure.message,
                hold=failure.hold,
            )
        self.run(actions)
        for failure in told:
            if failure.job is not None:
                self._tell(failure.job, failure)

    def _gone(self, failures: Sequence[Failure]) -> frozenset[NodeName] | None:
        """Their nodes whose machine Slurm waits for, or had and has no more; None when it can't be
        asked, again and again.
        """
        nodes = [node for failure in failures for node in failure.nodes]
        ended = {node for failure in failures for node in failure.ended}
        for again in range(READ_TRIES):
            if again:
                self._clock.sleep(READ_PAUSE)
            try:
                return awaited(self._slurm, nodes, ended)
            except SlurmError as error:
                self._log.warning("nodes unread", message=error.message)
        return None

    def _others(self, run: str) -> frozenset[NodeName]:
        try:
            return self._journal.claims(but=run).busy
        except StateError as error:
            self._log.problem("journal", message=error.message)
            return frozenset()

    def _tell(self, job: int, failure: Failure) -> None:
        """After its nodes are down, so that the job is back in the queue, where it can be held."""
        text = f"{failure.reason} {failure.message}"
        if failure.hold:
            try:
                self._slurm.hold(job)
                text = f"{failure.reason} held, release when mended: {failure.message}"
            except SlurmError as error:  # not a batch job: it has ended with its nodes
                self._log.warning("hold failed", job=job, message=error.message)
        self._comment(job, text)

    def _comment(self, job: int, text: str) -> None:
        try:
            self._slurm.comment(job, text)
        except SlurmError as error:
            self._log.warning("comment failed", job=job, message=error.message)

    def _terminate(self, actions: Sequence[Terminate]) -> list[Outcome]:
        by_cause: dict[EndCause, list[Terminate]] = defaultdict(list)
        for action in actions:
            by_cause[action.cause].append(action)
        for cause, group in by_cause.items():
            try:
                self._journal.condemn([item.instance.id for item in group], cause)
            except StateError as error:  # the ledger will not know why; the money matters more
                self._log.problem("journal", message=error.message)
        for action in actions:
            machine = action.instance
            self._log.info(
                "terminate",
                instance=machine.id,
                node=machine.node,
                cause=action.cause,
                why=action.why,
            )
        over, problem = self._until_over([item.instance.id for item in actions])
        outcomes = [
            Outcome(item, "" if item.instance.id in over else problem or "still there")
            for item in actions
        ]
        return self._logged(outcomes)

    def _until_over(self, ids: Sequence[str]) -> tuple[frozenset[str], str]:
        """End them batch by batch, again while that helps; what is left is reconcile's next pass.

        A round that ended something does not count as a try: EC2 lets a thousand go at once and
        then twenty a second, so a large suspend goes on at its pace.
        """
        over: frozenset[str] = frozenset()
        problem, fruitless = "", 0
        deadline = self._clock.monotonic() + END_SECONDS
        while (left := [item for item in ids if item not in over]) and fruitless < VERIFY_TRIES:
            before = len(over)
            for start in range(0, len(left), END_BATCH):
                try:
                    over |= self._cloud.terminate(left[start : start + END_BATCH])
                except CloudError as error:
                    problem = f"{error.code}: {error.message}"
                    if error.retryable:
                        break  # the other batches would be told the same
            fruitless += len(over) == before
            if self._clock.monotonic() >= deadline:
                break
            if len(over) < len(ids) and fruitless < VERIFY_TRIES:
                self._clock.sleep(VERIFY_PAUSE)
        return over, problem

    def _ask_jobs(self, nodes: Sequence[NodeName], reason: str) -> None:
        """As the nodes' agents would: by a file, which harms no job that doesn't look for it. The
        nodes' reason changes only when all was said, so that the rest is tried again.
        """
        now = self._clock.now()
        notice = Notice(Kind.SPOT, "terminate", now + NOTICE_SECONDS - HEARD_AFTER)
        for node in nodes:
            for job in self._slurm.jobs(node):
                if job.running:
                    self._request_stop((job.id, job.restarts), notice, node, now)
                    self._comment(job.id, f"{REASON_PREFIX} asked to save and stop: {node} goes")
        self._slurm.drain(nodes, reason)

    def _request_stop(
        self, attempt: node_jobs.JobAttempt, notice: Notice, node: NodeName, now: float
    ) -> None:
        place = self._stop_requests
        try:
            node_jobs.request_stop(place, attempt, notice, node=node, instance_id="", now=now)
        except OSError as error:
            raise SlurmError(f"no stop request in {place}: {error.strerror}") from error

    def _slurm_call(
        self,
        actions: Sequence[_OnNode],
        call: Callable[[Sequence[NodeName]], None],
        fit: Callable[[Sequence[NodeName]], Collection[NodeName]],
    ) -> list[Outcome]:
        """All nodes in one call; node by node when that is refused, so that one can't spoil it."""
        fitting = fit([item.node for item in actions]) if actions else ()
        told = [item for item in actions if item.node in fitting]
        if not told:
            return []
        for action in told:
            self._log.info("node", action=type(action).__name__, node=action.node, why=_why(action))
        error = _attempt(partial(call, [item.node for item in told]))
        if not error:
            return [Outcome(item) for item in told]
        if len(told) == 1:
            return self._logged([Outcome(told[0], error)])
        return [outcome for item in told for outcome in self._slurm_call([item], call, fit)]

    def _logged(self, outcomes: list[Outcome]) -> list[Outcome]:
        for outcome in outcomes:
            if outcome.error:
                kind = type(outcome.action).__name__
                self._log.problem("action failed", action=kind, error=outcome.error)
        return outcomes


def _by_reason(actions: Sequence[Action], kind: type[_Reasoned]) -> dict[str, list[_Reasoned]]:
    grouped: dict[str, list[_Reasoned]] = defaultdict(list)
    for action in actions:
        if isinstance(action, kind):
            grouped[action.reason].append(action)
    return grouped


def _why(action: _OnNode) -> str:
    return action.reason if isinstance(action, MarkDown | Drain | AskJobs) else action.why


def _attempt(call: Callable[[], None]) -> str:
    try:
        call()
    except EngineError as error:
        return error.message
    return ""
