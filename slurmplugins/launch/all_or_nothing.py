"""Decide which requests can begin, from the nodes that got an instance. Pure.

A request is a job, or a het job with all its components. slurmctld starts it when all its nodes are
up, and requeues all of it when one goes down. A request is complete when all its nodes were served.
It fails when one was not.

Requests may share nodes. A served node stays while a complete or undecided request waits for it. A
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

MAX_COMPONENTS: Final = 128
"""Components of a het job at most. slurmctld numbers them in a row."""

SHARED_NODE: Final = "shared-node"

RequestId = int | str
"""The id of a het job or of a job. A job request without a job is named by its first node."""


def request_id(job_request: JobRequest) -> RequestId:
    """Return the id of the request that a job request belongs to."""
    if job_request.het_job is not None:
        return job_request.het_job
    return job_request.all_nodes[0] if job_request.job is None else job_request.job


def may_have_het_jobs(job_requests: Iterable[JobRequest]) -> bool:
    """Return whether two jobs may be components of one het job.

    Only slurmctld can tell, so it must then be asked.
    """
    jobs = sorted({job_request.job for job_request in job_requests if job_request.job is not None})
    return any(second - first < MAX_COMPONENTS for first, second in pairwise(jobs))


def link_het_jobs(
    job_requests: Iterable[JobRequest], het_jobs: Mapping[int, int]
) -> tuple[JobRequest, ...]:
    """Give each component the number of its het job."""
    return tuple(
        replace(job_request, het_job=het_jobs[job_request.job])
        if job_request.job is not None and job_request.job in het_jobs
        else job_request
        for job_request in job_requests
    )


def failures_by_request(
    job_requests: Iterable[JobRequest], failures: Iterable[Failure]
) -> dict[RequestId, Failure]:
    """Map each failed request to the first of its failures."""
    request_ids = {
        job_request.job: request_id(job_request)
        for job_request in job_requests
        if job_request.job is not None
    }
    first_failures: dict[RequestId, Failure] = {}
    for failure in failures:
        request = failure.nodes[0] if failure.job is None else request_ids[failure.job]
        first_failures.setdefault(request, failure)
    return first_failures


def spreading_failures(
    job_requests: Sequence[JobRequest], failures: Iterable[Failure]
) -> list[Failure]:
    """Return the failures that change the result of other job requests."""
    shared_nodes = {node for job_request in job_requests for node in job_request.shared_nodes}
    request_sizes = Counter(request_id(job_request) for job_request in job_requests)
    by_request = failures_by_request(job_requests, failures)
    spreading = {
        request_id(job_request)
        for job_request in job_requests
        if request_id(job_request) in by_request
        and (
            request_sizes[request_id(job_request)] > 1
            or not shared_nodes.isdisjoint(job_request.nodes)
        )
    }
    return [failure for request, failure in by_request.items() if request in spreading]


def drop_failed(
    job_requests: Iterable[JobRequest], failed_requests: Container[RequestId]
) -> tuple[JobRequest, ...]:
    """Drop failed requests; hand their nodes to the next job request.

    A node is launched by the first job in the queue that waits for it.
    """
    remaining: list[JobRequest] = []
    assigned_nodes: set[NodeName] = set()
    for job_request in job_requests:
        if request_id(job_request) in failed_requests:
            continue
        if job_request.shared_nodes:
            own_nodes = tuple(node for node in job_request.all_nodes if node not in assigned_nodes)
            shared_nodes = tuple(node for node in job_request.all_nodes if node in assigned_nodes)
            remaining.append(replace(job_request, nodes=own_nodes, shared_nodes=shared_nodes))
        else:
            remaining.append(job_request)
        assigned_nodes.update(job_request.all_nodes)
    return tuple(remaining)


def reduce_plan(
    plan: ResumePlan, permitted: Sequence[JobLaunch], refusals: Sequence[Failure]
) -> ResumePlan:
    """Reduce the plan to the permitted launches that still help.

    `refusals` are the failures of the launches that are not permitted. A request fails with any
    node of a refused launch. Its other launches keep only the nodes that a request waits for which
    does not fail. Only a request with a refused launch of its own is held for it.
    """
    failure_by_node = {node: failure for failure in refusals for node in failure.nodes}
    planned_nodes = {
        node
        for job in plan.launches
        for request_part in job.node_requests
        for node in request_part.nodes
    }
    missing_nodes = planned_nodes - {
        node
        for job in permitted
        for request_part in job.node_requests
        for node in request_part.nodes
    }
    failure_by_request = failures_by_request(plan.job_requests, refusals)
    for request_part in plan.job_requests:
        for node in missing_nodes.intersection(request_part.all_nodes):
            failure_by_request.setdefault(
                request_id(request_part),
                _failure_through_node(failure_by_node[node], request_part, node),
            )
    earlier_failures = failures_by_request(plan.job_requests, plan.failures)
    remaining_requests = [
        request_part
        for request_part in plan.job_requests
        if request_id(request_part) not in failure_by_request.keys() | earlier_failures.keys()
    ]
    needed_nodes = {node for request_part in remaining_requests for node in request_part.all_nodes}
    return replace(
        plan,
        launches=tuple(
            reduced_job
            for job in permitted
            if (reduced_job := _only_nodes(job, needed_nodes)).node_requests
        ),
        failures=(*plan.failures, *failure_by_request.values()),
    )


def _failure_through_node(failure: Failure, job_request: JobRequest, node: NodeName) -> Failure:
    """Turn another job's failure on `node` into one of this job."""
    own_failure = replace(failure, job=job_request.job, nodes=job_request.all_nodes)
    if not failure.hold:
        return own_failure
    text = f"{node}, which it shares, was to be launched for job {failure.job}, which is held"
    return replace(own_failure, reason_code=SHARED_NODE, code="", message=text, hold=False)


def _only_nodes(job: JobLaunch, kept_nodes: Container[NodeName]) -> JobLaunch:
    asks = [
        replace(node_request, nodes=own_nodes)
        for node_request in job.node_requests
        if (own_nodes := tuple(node for node in node_request.nodes if node in kept_nodes))
    ]
    return replace(job, node_requests=tuple(asks))


@dataclass(frozen=True, slots=True)
class RequestResult:
    """The result of one request."""

    request: RequestId
    is_complete: bool
    """All its nodes were served, and it was not failed."""
    freed_nodes: tuple[NodeName, ...] = ()
    """Nodes of a failed request that no other request waits for."""


class RequestDecider:
    """Decides each request once, when all its nodes are known."""

    def __init__(self, job_requests: Iterable[JobRequest]) -> None:
        self._nodes_by_request: dict[RequestId, dict[NodeName, None]] = {}
        self._requests_by_node: dict[NodeName, dict[RequestId, None]] = {}
        for job_request in job_requests:
            request = request_id(job_request)
            self._nodes_by_request.setdefault(request, {}).update(
                dict.fromkeys(job_request.all_nodes)
            )
            for node in job_request.all_nodes:
                self._requests_by_node.setdefault(node, {})[request] = None
        self._undecided_counts = {
            request: len(nodes) for request, nodes in self._nodes_by_request.items()
        }
        self._known_nodes: set[NodeName] = set()
        self._missing_nodes: set[NodeName] = set()
        self._freed_nodes: set[NodeName] = set()

    def nodes(self, request: RequestId) -> Collection[NodeName]:
        """Return the nodes that the request waits for."""
        return self._nodes_by_request[request].keys()

    def waiting_requests(self, nodes: Iterable[NodeName]) -> frozenset[RequestId]:
        """Return the requests that wait for any of these nodes.

        Failed requests are left out.
        """
        return frozenset(
            request for node in nodes for request in self._requests_by_node.get(node, ())
        )

    def doomed(self, nodes: Iterable[NodeName]) -> bool:
        """Return whether every request for these nodes lacks another node."""
        requests = self.waiting_requests(nodes)
        return all(
            not self._missing_nodes.isdisjoint(self._nodes_by_request[request])
            for request in requests
        )

    def record(self, nodes: Iterable[NodeName], *, served: bool) -> tuple[RequestResult, ...]:
        """Record that these nodes were served or not.

        Returns the requests that this decides. Safe to repeat: the first word on a node counts.
        """
        decided: dict[RequestId, None] = {}
        for node in nodes:
            if node in self._known_nodes:
                continue
            self._known_nodes.add(node)
            if not served:
                self._missing_nodes.add(node)
            for request in self._requests_by_node.get(node, ()):
                if request in self._undecided_counts:
                    self._undecided_counts[request] -= 1
                    if not self._undecided_counts[request]:
                        decided[request] = None
        return self._decide(decided)

    def fail(self, requests: Iterable[RequestId]) -> tuple[RequestResult, ...]:
        """Fail requests without a launch, whatever is known of their nodes."""
        undecided = [request for request in requests if request in self._undecided_counts]
        return self._decide(undecided, fail=True)

    def _decide(
        self, requests: Iterable[RequestId], *, fail: bool = False
    ) -> tuple[RequestResult, ...]:
        complete_by_request = {
            request: not fail and self._missing_nodes.isdisjoint(self._nodes_by_request[request])
            for request in dict.fromkeys(requests)
        }
        for request, complete in complete_by_request.items():
            del self._undecided_counts[request]
            if not complete:
                for node in self._nodes_by_request[request]:
                    del self._requests_by_node[node][request]
        results = [
            RequestResult(item, ok, () if ok else self._free(item))
            for item, ok in complete_by_request.items()
        ]
        self._freed_nodes.update(node for result in results for node in result.freed_nodes)
        return tuple(results)

    def _free(self, request: RequestId) -> tuple[NodeName, ...]:
        return tuple(
            node
            for node in self._nodes_by_request[request]
            if node not in self._freed_nodes
            and (node in self._missing_nodes or not self._requests_by_node[node])
        )
