"""Adds up what becomes of nodes to results of requests: each gets all its nodes, or nothing."""

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
"""When offerings fail for different reasons, the one a person must act on is named first."""


class Board:
    """For one run. `settled` hears of every job of the plan exactly once, of many at a time, from
    any thread; `end` ends instances. Nothing is kept of a request that fails but what another one
    waits for. `named` hears of instances as they come, those of jobs that will fail among them.
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
        """Settle what the plan itself decides: requests that get nothing, or have all already."""
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
        """Take in what a lane says of its wants."""
        with self._lock:  # all lanes wait for it: what takes time comes after
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
        """Those that wait for any of these nodes."""
        with self._lock:
            return self._fates.waiting(nodes)

    def doomed(self, nodes: Iterable[NodeName]) -> bool:
        """Tell whether nobody who waits for these nodes can begin any more."""
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
        """One reason for the request, of the gravest kind, telling what every offering said."""
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
        # What another request asked for besides may be all that was too much.
        foreign = any(node not in nodes for item in failed for node in item.want.nodes)
        passing = foreign or any(self._passes(item, nodes) for item in refusals)
        return Failure(
            None,
            (),
            worst.slug,
            worst.code if isinstance(worst, CloudError) else "",
            "; ".join(text for text in messages if text),
            # Where one offering may have capacity again tomorrow, the job may well wait for it.
            hold=all(isinstance(error, CloudError) and error.holds for error in errors)
            and not passing,
        )

    def _passes(self, refusal: Refusal, nodes: Collection[NodeName]) -> bool:
        """An offering that another job asked for too much of may do for this one, and a quota comes
        free when the others that fill it end.
        """
        error = refusal.error
        return refusal.passed_on or (
            isinstance(error, Quota)
            and self._quotas.filled_by_others(refusal.offering, error, nodes)
        )


def _shares(
    asks: Iterable[JobRequest], freed: Iterable[NodeName], why: Failure, ended: Collection[NodeName]
) -> Iterable[Failure]:
    """A failure for each job of the request; each node is given back with one of them."""
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
        return -1  # our own disk or time: nothing was asked of the cloud
    if isinstance(error, Capacity | PriceTooLow):
        return len(_GRAVITY) + 1
    kinds = (index for index, kind in enumerate(_GRAVITY) if isinstance(error, kind))
    return next(kinds, len(_GRAVITY))
