"""Decide which requests can begin, from the nodes that got an instance. Pure.

A request is a job, or a het job with all its components. slurmctld starts it when all its nodes are
up, and requeues all of it when one goes down. A request stands when all its nodes were served. It
fails when one was not.

Requests may share nodes. A served node stays while a standing or undecided request waits for it. A
node that was not served fails each request that waits for it. So each failed request has a node of
its own that requeues it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping, Sequence

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.launch import Failure, JobLaunch, JobRequest, ResumePlan

MOST_COMPONENTS: Final = 128
"""Components of a het job at most. slurmctld numbers them in a row."""

SHARED_NODE: Final = "shared-node"

Request = int | str
"""The id of a het job or of a job. An ask without a job is named by its first node."""


def request_of(ask: JobRequest) -> Request:
    """Return the id of the request that an ask belongs to."""
    if ask.whole is not None:
        return ask.whole
    return ask.wanted[0] if ask.job is None else ask.job


def suspects(asks: Iterable[JobRequest]) -> bool:
    """Return whether two jobs may be components of one het job.

    Only slurmctld can tell, so it must then be asked.
    """
    jobs = sorted({ask.job for ask in asks if ask.job is not None})
    return any(second - first < MOST_COMPONENTS for first, second in pairwise(jobs))


def linked(asks: Iterable[JobRequest], het_jobs: Mapping[int, int]) -> tuple[JobRequest, ...]:
    """Give each component the number of its het job."""
    return tuple(
        replace(ask, whole=het_jobs[ask.job])
        if ask.job is not None and ask.job in het_jobs
        else ask
        for ask in asks
    )


def of_failures(asks: Iterable[JobRequest], failures: Iterable[Failure]) -> dict[Request, Failure]:
    """Map each failed request to the first of its failures."""
    requests = {ask.job: request_of(ask) for ask in asks if ask.job is not None}
    found: dict[Request, Failure] = {}
    for failure in failures:
        request = failure.nodes[0] if failure.job is None else requests[failure.job]
        found.setdefault(request, failure)
    return found


def entangled(asks: Sequence[JobRequest], failures: Iterable[Failure]) -> list[Failure]:
    """Return the failures that change the result of other asks."""
    shared = {node for ask in asks for node in ask.shared}
    parts = Counter(request_of(ask) for ask in asks)
    found = of_failures(asks, failures)
    touching = {
        request_of(ask)
        for ask in asks
        if request_of(ask) in found
        and (parts[request_of(ask)] > 1 or not shared.isdisjoint(ask.nodes))
    }
    return [failure for request, failure in found.items() if request in touching]


def without(asks: Iterable[JobRequest], failed: Container[Request]) -> tuple[JobRequest, ...]:
    """Drop failed requests; hand their nodes to the next ask.

    A node is launched by the first job in the queue that waits for it.
    """
    kept: list[JobRequest] = []
    brought: set[NodeName] = set()
    for ask in asks:
        if request_of(ask) in failed:
            continue
        if ask.shared:
            mine = tuple(node for node in ask.wanted if node not in brought)
            shared = tuple(node for node in ask.wanted if node in brought)
            kept.append(replace(ask, nodes=mine, shared=shared))
        else:
            kept.append(ask)
        brought.update(ask.wanted)
    return tuple(kept)


def screened(plan: ResumePlan, let: Sequence[JobLaunch], refused: Sequence[Failure]) -> ResumePlan:
    """Reduce the plan to the permitted launches that still help.

    `let` and `refused` are the permitted and the refused launches. A request fails with any node of
    a refused launch. Its other launches keep only the nodes that a request waits for which does not
    fail. Only a request with a refused launch of its own is held for it.
    """
    cause = {node: failure for failure in refused for node in failure.nodes}
    launched = {node for job in plan.launches for ask in job.asks for node in ask.nodes}
    lacking = launched - {node for job in let for ask in job.asks for node in ask.nodes}
    failed = of_failures(plan.asks, refused)
    for ask in plan.asks:
        for node in lacking.intersection(ask.wanted):
            failed.setdefault(request_of(ask), _beside(cause[node], ask, node))
    before = of_failures(plan.asks, plan.failures)
    standing = [ask for ask in plan.asks if request_of(ask) not in failed.keys() | before.keys()]
    kept = {node for ask in standing for node in ask.wanted}
    return replace(
        plan,
        launches=tuple(left for job in let if (left := _of_nodes(job, kept)).asks),
        failures=(*plan.failures, *failed.values()),
    )


def _beside(failure: Failure, ask: JobRequest, node: NodeName) -> Failure:
    """Turn another job's failure on `node` into one of this ask."""
    mine = replace(failure, job=ask.job, nodes=ask.wanted)
    if not failure.hold:
        return mine
    text = f"{node}, for which it waits, was to come for job {failure.job}, which is to be held"
    return replace(mine, slug=SHARED_NODE, code="", message=text, hold=False)


def _of_nodes(job: JobLaunch, kept: Container[NodeName]) -> JobLaunch:
    asks = [
        replace(ask, nodes=mine)
        for ask in job.asks
        if (mine := tuple(node for node in ask.nodes if node in kept))
    ]
    return replace(job, asks=tuple(asks))


@dataclass(frozen=True, slots=True)
class Fate:
    """The result of one request."""

    request: Request
    stands: bool
    """All its nodes were served, and it was not failed."""
    freed: tuple[NodeName, ...] = ()
    """Nodes of a failed request that no other request waits for."""


class Fates:
    """Decides each request once, when all its nodes are known."""

    def __init__(self, asks: Iterable[JobRequest]) -> None:
        self._wants: dict[Request, dict[NodeName, None]] = {}
        self._wanted_by: dict[NodeName, dict[Request, None]] = {}
        for ask in asks:
            request = request_of(ask)
            self._wants.setdefault(request, {}).update(dict.fromkeys(ask.wanted))
            for node in ask.wanted:
                self._wanted_by.setdefault(node, {})[request] = None
        self._unknown = {request: len(nodes) for request, nodes in self._wants.items()}
        self._known: set[NodeName] = set()
        self._lacking: set[NodeName] = set()
        self._freed: set[NodeName] = set()

    def nodes(self, request: Request) -> Collection[NodeName]:
        """Return the nodes that the request waits for."""
        return self._wants[request].keys()

    def waiting(self, nodes: Iterable[NodeName]) -> frozenset[Request]:
        """Return the requests that wait for any of these nodes.

        Failed requests are left out.
        """
        return frozenset(request for node in nodes for request in self._wanted_by.get(node, ()))

    def doomed(self, nodes: Iterable[NodeName]) -> bool:
        """Return whether every request for these nodes lacks another node."""
        requests = self.waiting(nodes)
        return all(not self._lacking.isdisjoint(self._wants[request]) for request in requests)

    def tell(self, nodes: Iterable[NodeName], *, had: bool) -> tuple[Fate, ...]:
        """Record that these nodes were served or not.

        Returns the requests that this decides. Safe to repeat: the first word on a node counts.
        """
        decided: dict[Request, None] = {}
        for node in nodes:
            if node in self._known:
                continue
            self._known.add(node)
            if not had:
                self._lacking.add(node)
            for request in self._wanted_by.get(node, ()):
                if request in self._unknown:
                    self._unknown[request] -= 1
                    if not self._unknown[request]:
                        decided[request] = None
        return self._decide(decided)

    def fail(self, requests: Iterable[Request]) -> tuple[Fate, ...]:
        """Fail requests without a launch, whatever is known of their nodes."""
        undecided = [request for request in requests if request in self._unknown]
        return self._decide(undecided, fail=True)

    def _decide(self, requests: Iterable[Request], *, fail: bool = False) -> tuple[Fate, ...]:
        stands = {
            request: not fail and self._lacking.isdisjoint(self._wants[request])
            for request in dict.fromkeys(requests)
        }
        for request, standing in stands.items():
            del self._unknown[request]
            if not standing:
                for node in self._wants[request]:
                    del self._wanted_by[node][request]
        fates = [Fate(item, ok, () if ok else self._free(item)) for item, ok in stands.items()]
        self._freed.update(node for fate in fates for node in fate.freed)
        return tuple(fates)

    def _free(self, request: Request) -> tuple[NodeName, ...]:
        return tuple(
            node
            for node in self._wants[request]
            if node not in self._freed and (node in self._lacking or not self._wanted_by[node])
        )
