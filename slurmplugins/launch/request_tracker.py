"""Add up the results of nodes to results of jobs: each gets all its nodes, or nothing.

Also here: the EC2 quota that an instance counts against, since a quota decides whether a failed job
is held. Other instances of ours may fill a quota: it comes free as they end. A person is needed
only for a quota that one job exceeds alone.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import (
    CloudError,
    CloudUnreachable,
    Denied,
    EngineError,
    InvalidRequest,
    NoCapacity,
    NotFound,
    PriceTooLow,
    QuotaExceeded,
    Throttled,
)
from slurmplugins.launch.all_or_nothing import RequestDecider, request_id
from slurmplugins.model.instance import ROLE_COMPUTE, EndCause, InstanceState
from slurmplugins.model.launch import Failure, JobResults

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from slurmplugins.launch.all_or_nothing import RequestId, RequestResult
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Assignment, Instance, Offering
    from slurmplugins.model.launch import JobRequest, NodeRequest, Refusal, ResumePlan


_ERRORS_BY_WEIGHT: Final = (
    Denied,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    CloudUnreachable,
    Throttled,
)
"""Errors in the order of their weight. Of several reasons, the one a person must act on comes
first."""

_FAMILY: Final = re.compile(r"[a-z]+")

_STANDARD: Final = frozenset(("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"))

_FAMILY_QUOTA_CODES: Final = frozenset(
    ("InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded")
)
"""Codes that refuse the instances of some families, of one lifecycle."""


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """The outcome of a node request: it is complete, or it is not and won't be."""

    node_request: NodeRequest
    assignments: tuple[Assignment, ...] = ()
    """The instances of a complete request; empty for a failed one."""
    refusals: tuple[Refusal, ...] = ()
    """Why it failed, offering by offering. `error` has the rest of the reason."""
    error: EngineError | None = None
    terminated_nodes: tuple[NodeName, ...] = ()
    """Nodes of the request that had an instance for a while."""


class JobTracker:
    """Tracks the requests of one process. Safe between threads.

    `on_results` is called with every job of the plan exactly once, with many at a time, from any
    thread. `on_assigned` is called with instances as they come, also for jobs that will fail.

    A failed request keeps nothing, except nodes that another request waits for.
    """

    def __init__(
        self,
        plan: ResumePlan,
        terminate: Callable[[Sequence[str]], object],
        on_results: Callable[[JobResults], None],
        *,
        on_assigned: Callable[[Sequence[Assignment]], None],
    ) -> None:
        self._plan = plan
        self._quotas = QuotaUsage(plan.nodes_by_quota)
        self._terminate = terminate
        self._on_results = on_results
        self._on_assigned = on_assigned
        self._decider = RequestDecider(plan.job_requests)
        self._job_requests: dict[RequestId, list[JobRequest]] = {}
        for job_request in plan.job_requests:
            self._job_requests.setdefault(request_id(job_request), []).append(job_request)
        self._assignments = {item.node: item for item in plan.adoptions}
        self._outcomes: dict[NodeName, RequestOutcome] = {}
        self._served_nodes: set[NodeName] = set()
        self._lock = threading.Lock()

    def decide_planned(self) -> None:
        """Decide the requests that the plan itself decides.

        They get nothing, or have all their nodes already.
        """
        first_failures: dict[RequestId, Failure] = {}
        request_by_job = {
            job_request.job: request_id(job_request)
            for job_request in self._plan.job_requests
            if job_request.job is not None
        }
        for failure in self._plan.failures:
            request = failure.nodes[0] if failure.job is None else request_by_job[failure.job]
            first_failures.setdefault(request, failure)
        served_nodes = [item.node for item in self._plan.adoptions] + list(
            self._plan.claimed_by_others
        )
        with self._lock:
            request_results = self._decider.fail(first_failures)
            results, surplus_ids = self._results(request_results, first_failures)
        self._publish(results, surplus_ids)
        with self._lock:
            results, surplus_ids = self._results(self._decider.record(served_nodes, served=True))
        self._publish(results, surplus_ids)

    def record_launched(self, instances: Iterable[Instance], final: Sequence[Assignment]) -> None:
        """Count launched instances by quota, and report those with final nodes.

        Their jobs are not decided then: they may still fail.
        """
        self._quotas.add(instances)
        self._on_assigned(final)

    def record_outcomes(self, outcomes: Sequence[RequestOutcome]) -> None:
        """Record the outcomes of node requests, from any thread."""
        with self._lock:  # all pool launches wait for it: slow work comes after it
            request_results: list[RequestResult] = []
            for outcome in outcomes:
                self._assignments |= {item.node: item for item in outcome.assignments}
                nodes = outcome.node_request.nodes
                if not outcome.assignments:
                    self._outcomes |= dict.fromkeys(nodes, outcome)
                request_results += self._decider.record(nodes, served=bool(outcome.assignments))
            results, surplus_ids = self._results(request_results)
        self._publish(results, surplus_ids)

    def requests(self, nodes: Iterable[NodeName]) -> frozenset[RequestId]:
        """Return the requests that wait for any of these nodes."""
        with self._lock:
            return self._decider.waiting_requests(nodes)

    def doomed(self, nodes: Iterable[NodeName]) -> bool:
        """Return whether no request for these nodes can begin any more."""
        with self._lock:
            return self._decider.doomed(nodes)

    def _publish(self, results: JobResults, surplus_ids: Sequence[str]) -> None:
        if surplus_ids:
            self._terminate(surplus_ids)
        if results != JobResults():
            self._on_results(results)

    def _results(
        self,
        request_results: Iterable[RequestResult],
        known_failures: Mapping[RequestId, Failure] | None = None,
    ) -> tuple[JobResults, list[str]]:
        assignments: list[Assignment] = []
        failures: list[Failure] = []
        served_nodes: list[NodeName] = []
        surplus_ids: list[str] = []
        for request_result in request_results:
            request, freed_nodes = request_result.request, request_result.freed_nodes
            if request_result.is_complete:
                nodes = [n for n in self._decider.nodes(request) if n not in self._served_nodes]
                self._served_nodes.update(nodes)
                served_nodes += nodes
                assignments += [self._assignments[n] for n in nodes if n in self._assignments]
                continue
            freed_assignments = {
                n: self._assignments.pop(n) for n in freed_nodes if n in self._assignments
            }
            surplus_ids += [item.instance_id for item in freed_assignments.values()]
            failures += _failures_by_job(
                self._job_requests[request],
                freed_nodes,
                (known_failures or {}).get(request) or self._failure(request),
                freed_assignments.keys() | self._terminated_nodes(freed_nodes),
            )
        return JobResults(tuple(assignments), tuple(failures), tuple(served_nodes)), surplus_ids

    def _terminated_nodes(self, nodes: Iterable[NodeName]) -> set[NodeName]:
        """Return the nodes that had an instance for a while."""
        outcomes = (self._outcomes[node] for node in nodes if node in self._outcomes)
        return {node for outcome in outcomes for node in outcome.terminated_nodes}

    def _failure(self, request: RequestId) -> Failure:
        """Return one failure with the gravest reason and every offering's message."""
        nodes = self._decider.nodes(request)
        node_outcomes = (self._outcomes[node] for node in nodes if node in self._outcomes)
        outcomes = list({id(item): item for item in node_outcomes}.values())
        refusals = [item for outcome in outcomes for item in outcome.refusals]
        own_errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        errors: list[EngineError] = [*own_errors, *(item.error for item in refusals)]
        if not errors:
            return Failure(
                None, (), NoCapacity.reason_code, "NoOffering", "the pool has no offering to try"
            )
        heaviest_error = min(errors, key=_weight)
        refusal_errors = [item.error for item in refusals]
        messages = [
            _refusals_text(refusals),
            *(e.message for e in own_errors if e not in refusal_errors),
        ]
        # Perhaps only the nodes of another request in the same call were too many.
        shares_calls = any(
            node not in nodes for item in outcomes for node in item.node_request.nodes
        )
        may_pass = shares_calls or any(self._may_pass(item, nodes) for item in refusals)
        return Failure(
            None,
            (),
            heaviest_error.reason_code,
            heaviest_error.code if isinstance(heaviest_error, CloudError) else "",
            "; ".join(text for text in messages if text),
            # The job may wait for an offering that may have capacity again tomorrow.
            hold=all(isinstance(error, CloudError) and error.holds_job for error in errors)
            and not may_pass,
        )

    def _may_pass(self, refusal: Refusal, nodes: Collection[NodeName]) -> bool:
        """Return whether the refusal may pass without a person.

        An offering that refused another job's larger call may do for this one. A quota comes free
        when the other instances in it end.
        """
        error = refusal.error
        return refusal.from_another_job or (
            isinstance(error, QuotaExceeded)
            and self._quotas.filled_by_others(refusal.offering, error, nodes)
        )


def _failures_by_job(
    job_requests: Iterable[JobRequest],
    freed_nodes: Iterable[NodeName],
    failure: Failure,
    terminated_nodes: Collection[NodeName],
) -> Iterable[Failure]:
    """Yield a failure for each job of the request.

    Each node is given back with one of them.
    """
    remaining = dict.fromkeys(freed_nodes)
    for job_request in job_requests:
        own_nodes = tuple(node for node in job_request.all_nodes if node in remaining)
        for node in own_nodes:
            remaining.pop(node, None)
        own_terminated = tuple(node for node in own_nodes if node in terminated_nodes)
        yield replace(
            failure, job=job_request.job, nodes=own_nodes, terminated_nodes=own_terminated
        )


def _refusals_text(refusals: Sequence[Refusal]) -> str:
    texts = (f"{item.offering.key}: {item.error.code}: {item.error.message}" for item in refusals)
    return "; ".join(dict.fromkeys(texts))


def _weight(error: EngineError) -> int:
    if not isinstance(error, CloudError):
        return -1  # our own disk or time: the cloud was not asked
    if isinstance(error, NoCapacity | PriceTooLow):
        return len(_ERRORS_BY_WEIGHT) + 1
    kinds = (index for index, kind in enumerate(_ERRORS_BY_WEIGHT) if isinstance(error, kind))
    return next(kinds, len(_ERRORS_BY_WEIGHT))


def quota_name(instance_type: str, lifecycle: str) -> str:
    """Name the quota of this instance type and lifecycle.

    EC2 has one quota for some families together, and separate ones for spot and on demand.
    """
    match = _FAMILY.match(instance_type)
    family = match[0] if match else instance_type
    if family in _STANDARD:
        family = "standard"
    return f"{lifecycle}:{'g' if family == 'vt' else family}"


def nodes_by_quota(
    instances: Iterable[Instance],
    termination_causes: Mapping[str, EndCause],
    static_nodes: Collection[str],
) -> dict[str, frozenset[NodeName]]:
    """Map each quota to the nodes whose instances fill it for now.

    These instances will end one day, or are about to. Static nodes keep theirs and are left out.
    Instances that a launch of ours could not keep are left out too. Otherwise a job that exceeds a
    quota alone would find the instances of its last try.
    """
    by_quota: dict[str, set[NodeName]] = {}
    for instance in instances:
        if instance.role != ROLE_COMPUTE or instance.node is None or instance.node in static_nodes:
            continue
        terminated = instance.state is InstanceState.TERMINATED
        if not terminated and termination_causes.get(instance.id) is not EndCause.RESUME_FAILED:
            by_quota.setdefault(quota_name(instance.type, instance.lifecycle), set()).add(
                instance.node
            )
    return {name: frozenset(nodes) for name, nodes in by_quota.items()}


class QuotaUsage:
    """The nodes that fill each quota: those listed before, and those of this process's launches.

    Safe between threads.
    """

    def __init__(self, initial_nodes: Mapping[str, Collection[NodeName]]) -> None:
        self._nodes = {name: set(nodes) for name, nodes in initial_nodes.items()}
        self._lock = threading.Lock()

    def add(self, instances: Iterable[Instance]) -> None:
        """Count instances that this process launched.

        Instances that it terminates later count too.
        """
        with self._lock:
            for instance in instances:
                if instance.node is not None:
                    self._nodes.setdefault(
                        quota_name(instance.type, instance.lifecycle), set()
                    ).add(instance.node)

    def filled_by_others(
        self, offering: Offering, error: CloudError, own_nodes: Collection[NodeName]
    ) -> bool:
        """Return whether other nodes' instances count against the quota.

        `own_nodes` are those of the request.
        """
        name = quota_name(offering.type, offering.lifecycle)
        with self._lock:
            if error.code in _FAMILY_QUOTA_CODES:
                return not self._nodes.get(name, set()).issubset(own_nodes)
            return any(not nodes.issubset(own_nodes) for nodes in self._nodes.values())
