"""Add up the results of nodes to results of requests: each gets all its nodes, or nothing."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import (
    Capacity,
    CloudError,
    CloudUnreachable,
    Denied,
    EngineError,
    InvalidRequest,
    NotFound,
    PriceTooLow,
    Quota,
    Throttled,
)
from slurmplugins.launch.all_or_nothing import Fates, request_of
from slurmplugins.model.launch import Failure, Results

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from slurmplugins.launch.all_or_nothing import Fate, Request
    from slurmplugins.launch.ec2_quotas import Quotas
    from slurmplugins.launch.pool_launch import Decision
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Assignment
    from slurmplugins.model.launch import JobRequest, Refusal, ResumePlan


_GRAVITY: Final = (Denied, InvalidRequest, NotFound, Quota, CloudUnreachable, Throttled)
"""Errors in the order of their weight. Of several reasons, the one a person must act on comes
first."""


class Board:
    """Tracks the requests of one run. Safe between threads.

    `settled` hears of every job of the plan exactly once, of many at a time, from any thread. `end`
    terminates instances. `named` hears of instances as they come, also for jobs that will fail.

    A failed request keeps nothing, except nodes that another request waits for.
    """

    def __init__(
        self,
        plan: ResumePlan,
        quotas: Quotas,
        end: Callable[[Sequence[str]], object],
        settled: Callable[[Results], None],
        *,
        named: Callable[[Sequence[Assignment]], None],
    ) -> None:
        self._plan = plan
        self._quotas = quotas
        self._end = end
        self._settled = settled
        self.named = named
        self._fates = Fates(plan.asks)
        self._asks: dict[Request, list[JobRequest]] = {}
        for ask in plan.asks:
            self._asks.setdefault(request_of(ask), []).append(ask)
        self._machines = {item.node: item for item in plan.adopt}
        self._decisions: dict[NodeName, Decision] = {}
        self._served: set[NodeName] = set()
        self._lock = threading.Lock()

    def open(self) -> None:
        """Decide the requests that the plan itself decides.

        They get nothing, or have all their nodes already.
        """
        given: dict[Request, Failure] = {}
        jobs = {ask.job: request_of(ask) for ask in self._plan.asks if ask.job is not None}
        for failure in self._plan.failures:
            request = failure.nodes[0] if failure.job is None else jobs[failure.job]
            given.setdefault(request, failure)
        had = [item.node for item in self._plan.adopt] + list(self._plan.busy)
        with self._lock:
            fates = self._fates.fail(given)
            results, ended = self._results(fates, given)
        self._tell(results, ended)
        with self._lock:
            results, ended = self._results(self._fates.tell(had, had=True))
        self._tell(results, ended)

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Record the outcomes of node requests, from any thread."""
        with self._lock:  # all pool launches wait for it: slow work comes after it
            fates: list[Fate] = []
            for decision in decisions:
                self._machines |= {item.node: item for item in decision.machines}
                nodes = decision.want.nodes
                if not decision.machines:
                    self._decisions |= dict.fromkeys(nodes, decision)
                fates += self._fates.tell(nodes, had=bool(decision.machines))
            results, ended = self._results(fates)
        self._tell(results, ended)

    def requests(self, nodes: Iterable[NodeName]) -> frozenset[Request]:
        """Return the requests that wait for any of these nodes."""
        with self._lock:
            return self._fates.waiting(nodes)

    def doomed(self, nodes: Iterable[NodeName]) -> bool:
        """Return whether no request for these nodes can begin any more."""
        with self._lock:
            return self._fates.doomed(nodes)

    def _tell(self, results: Results, ended: Sequence[str]) -> None:
        if ended:
            self._end(ended)
        if results != Results():
            self._settled(results)

    def _results(
        self, fates: Iterable[Fate], given: Mapping[Request, Failure] | None = None
    ) -> tuple[Results, list[str]]:
        assignments: list[Assignment] = []
        failures: list[Failure] = []
        served: list[NodeName] = []
        ended: list[str] = []
        for fate in fates:
            if fate.stands:
                nodes = [n for n in self._fates.nodes(fate.request) if n not in self._served]
                self._served.update(nodes)
                served += nodes
                assignments += [self._machines[n] for n in nodes if n in self._machines]
                continue
            machines = {n: self._machines.pop(n) for n in fate.freed if n in self._machines}
            ended += [item.instance_id for item in machines.values()]
            why = (given or {}).get(fate.request) or self._failure(fate.request)
            failed = (self._decisions[node] for node in fate.freed if node in self._decisions)
            over = machines.keys() | {node for decision in failed for node in decision.ended}
            failures += _shares(self._asks[fate.request], fate.freed, why, over)
        return Results(tuple(assignments), tuple(failures), tuple(served)), ended

    def _failure(self, request: Request) -> Failure:
        """Return one failure with the gravest reason and every offering's message."""
        nodes = self._fates.nodes(request)
        found = (self._decisions[node] for node in nodes if node in self._decisions)
        failed = list({id(item): item for item in found}.values())
        refusals = [item for decision in failed for item in decision.refusals]
        own = [decision.error for decision in failed if decision.error is not None]
        errors: list[EngineError] = [*own, *(item.error for item in refusals)]
        if not errors:
            return Failure(None, (), Capacity.slug, "NoOffering", "no offering to try")
        worst = min(errors, key=_gravity)
        known = [item.error for item in refusals]
        messages = [_said(refusals), *(e.message for e in own if e not in known)]
        # Perhaps only the nodes of another request in the same call were too many.
        foreign = any(node not in nodes for item in failed for node in item.want.nodes)
        passing = foreign or any(self._passes(item, nodes) for item in refusals)
        return Failure(
            None,
            (),
            worst.slug,
            worst.code if isinstance(worst, CloudError) else "",
            "; ".join(text for text in messages if text),
            # The job may wait for an offering that may have capacity again tomorrow.
            hold=all(isinstance(error, CloudError) and error.holds for error in errors)
            and not passing,
        )

    def _passes(self, refusal: Refusal, nodes: Collection[NodeName]) -> bool:
        """Return whether the refusal may pass without a person.

        An offering that refused another job's larger call may do for this one. A quota comes free
        when the other instances in it end.
        """
        error = refusal.error
        return refusal.passed_on or (
            isinstance(error, Quota)
            and self._quotas.filled_by_others(refusal.offering, error, nodes)
        )


def _shares(
    asks: Iterable[JobRequest], freed: Iterable[NodeName], why: Failure, ended: Collection[NodeName]
) -> Iterable[Failure]:
    """Yield a failure for each job of the request.

    Each node is given back with one of them.
    """
    left = dict.fromkeys(freed)
    for ask in asks:
        mine = tuple(node for node in ask.wanted if node in left)
        for node in mine:
            left.pop(node, None)
        over = tuple(node for node in mine if node in ended)
        yield replace(why, job=ask.job, nodes=mine, ended=over)


def _said(refusals: Sequence[Refusal]) -> str:
    texts = (f"{item.offering.key}: {item.error.code}: {item.error.message}" for item in refusals)
    return "; ".join(dict.fromkeys(texts))


def _gravity(error: EngineError) -> int:
    if not isinstance(error, CloudError):
        return -1  # our own disk or time: the cloud was not asked
    if isinstance(error, Capacity | PriceTooLow):
        return len(_GRAVITY) + 1
    kinds = (index for index, kind in enumerate(_GRAVITY) if isinstance(error, kind))
    return next(kinds, len(_GRAVITY))
