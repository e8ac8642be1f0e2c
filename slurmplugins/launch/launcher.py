"""Launch the instances of many jobs: equal ones in common calls, and each job all or nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud import error_codes
from slurmplugins.errors import (
    CloudError,
    EngineError,
    QuotaExceeded,
    StateError,
    TooLate,
)
from slurmplugins.launch import batching, launch_call
from slurmplugins.launch.batching import CallResult
from slurmplugins.launch.request_tracker import RequestOutcome
from slurmplugins.model.instance import assignments
from slurmplugins.model.launch import LaunchRequest, Refusal
from slurmplugins.state import unavailable_offerings

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from slurmplugins.errors import NotTerminated
    from slurmplugins.launch.batching import Batch, InstanceAllocation
    from slurmplugins.launch.launch_call import LaunchContext
    from slurmplugins.launch.request_tracker import JobTracker
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance, Offering, OfferingGroup
    from slurmplugins.model.launch import JobLaunch, NodeRequest
    from slurmplugins.state.unavailable_offerings import Unavailability

NO_UNTERMINATED: Final[Mapping[NodeName, NotTerminated]] = MappingProxyType({})

NOT_BOOTED_SECONDS: Final = 5.0
"""Seconds after the request in which an instance can't have read its name yet. It may get another
name if the call for that leaves before then."""

SHORTAGE_CODE: Final = "InsufficientInstanceCapacity"
"""EC2's code for a shortage, used for a partial answer that has no code."""


def launch_jobs(
    context: LaunchContext,
    jobs: Sequence[JobLaunch],
    job_tracker: JobTracker,
    unterminated: Mapping[NodeName, NotTerminated] = NO_UNTERMINATED,
) -> None:
    """Launch instances for every node of each job.

    Each job's result goes to the tracker: its instances, or the reason why it has none.
    `unterminated` has nodes whose instance should have been terminated and lives. A job with one of
    them gets nothing.
    """
    workers = context.engine.workers
    requests = _without_unterminated(jobs, job_tracker, unterminated)
    if unterminated:
        requests = _without_doomed(requests, job_tracker)
    unavailable = context.engine.unavailable_offerings.entries()
    first, last = _split_unlikely(requests, job_tracker, unavailable)
    rest = [item for item in requests if item not in {*first, *last}]

    def launch(node_requests: Sequence[NodeRequest]) -> None:
        workers.map(PoolLaunch.launch, _pool_launches(context, node_requests, job_tracker))

    def launch_in_turn() -> None:
        launch(first)
        launch(_without_doomed(last, job_tracker))

    if first:
        workers.map(lambda work: work(), [lambda: launch(rest), launch_in_turn])
    else:
        workers.map(PoolLaunch.launch, _pool_launches(context, rest, job_tracker))


def _pool_launches(
    context: LaunchContext, requests: Sequence[NodeRequest], job_tracker: JobTracker
) -> list[PoolLaunch]:
    """Group the requests by pool and fallback order."""
    groups: dict[tuple[str, tuple[OfferingGroup, ...]], list[NodeRequest]] = {}
    for item in requests:
        groups.setdefault((item.pool.name, item.fallback_order), []).append(item)
    return [PoolLaunch(context, group, job_tracker) for group in groups.values()]


def _without_unterminated(
    jobs: Sequence[JobLaunch],
    job_tracker: JobTracker,
    unterminated: Mapping[NodeName, NotTerminated],
) -> list[NodeRequest]:
    """Fail the jobs with a node whose old instance lives.

    Returns the requests of the other jobs."""
    remaining: list[NodeRequest] = []
    for job in jobs:
        requests = job.node_requests
        nodes = (node for item in requests for node in item.nodes if node in unterminated)
        if (node := next(nodes, None)) is None:
            remaining += requests
        else:
            error = unterminated[node]
            job_tracker.record_outcomes([RequestOutcome(item, error=error) for item in requests])
    return remaining


def _without_doomed(requests: Sequence[NodeRequest], job_tracker: JobTracker) -> list[NodeRequest]:
    """Drop node requests that help no job any more.

    The tracker hears of them. Returns the others.
    """
    doomed = {item for item in requests if job_tracker.doomed(item.nodes)}
    job_tracker.record_outcomes([RequestOutcome(item) for item in doomed])
    return [item for item in requests if item not in doomed]


def _split_unlikely(
    requests: Sequence[NodeRequest], job_tracker: JobTracker, unavailable: Container[str]
) -> tuple[list[NodeRequest], list[NodeRequest]]:
    """Choose the node requests to try first and last.

    Both belong to jobs that will hardly get all their nodes. Offerings that were refused everywhere
    a moment ago are tried first. The rest of such a job comes last: its instances would only be
    terminated again, and their first minute is billed.
    """
    unlikely = {
        item: None
        for item in requests
        if all(offering.key in unavailable for group in item.fallback_order for offering in group)
    }
    if not unlikely:
        return [], []
    waiting = {item: job_tracker.requests(item.nodes) for item in requests}
    unlikely_ids = {request_id for item in unlikely for request_id in waiting[item]}
    last = [
        item for item in requests if item not in unlikely and unlikely_ids.issuperset(waiting[item])
    ]
    waiting_ids = {request_id for item in last for request_id in waiting[item]}
    return [item for item in unlikely if waiting_ids & waiting[item]], last


@dataclass(slots=True)
class RequestProgress:
    """A node request's refusals and errors up to now."""

    refusals: list[Refusal] = field(default_factory=list)
    error: EngineError | None = None
    terminated_nodes: list[NodeName] = field(default_factory=list)


class PoolLaunch:
    """Node requests of one pool and one fallback order, launched together.

    The tracker hears of each request exactly once, as soon as its result is known.
    """

    def __init__(
        self, context: LaunchContext, requests: Sequence[NodeRequest], job_tracker: JobTracker
    ) -> None:
        self._context = context
        self._pool = requests[0].pool
        self._fallback_order = requests[0].fallback_order
        self._progress = {item: RequestProgress() for item in requests}
        self._job_tracker = job_tracker
        self._unavailable_offerings = context.engine.unavailable_offerings
        self._unavailable_at_start = self._unavailable_offerings.entries()

    def launch(self) -> None:
        """Try group after group of offerings until each request has its result."""
        offerings = [item for group in self._fallback_order for item in group]
        usable_offerings = set(
            unavailable_offerings.available_or_next(offerings, self._unavailable_at_start)
        )
        group_tried = False
        for group in self._fallback_order:
            usable = tuple(item for item in group if item in usable_offerings)
            if not usable:
                continue
            if not self._progress or (group_tried and self._context.out_of_time):
                break
            group_tried = True
            self._try_group(usable)
        self._give_up(list(self._progress))

    def _try_group(self, group: OfferingGroup) -> None:
        """Try one group for all open requests, then retry throttled ones."""
        requests, pauses = list(self._progress), self._context.pauses()
        burst, workers = self._context.rate.burst, self._context.engine.workers
        while requests:
            batches = batching.batches(requests, fleet=len(group) > 1, burst=burst)
            by_batch = workers.map(lambda batch: self._call(batch, group), batches)
            results = [result for batch_results in by_batch for result in batch_results]
            self._allocate(results)
            throttled = (
                item
                for result in results
                if result.throttled
                for item in result.batch.node_requests
            )
            requests = [item for item in dict.fromkeys(throttled) if item in self._progress]
            if not requests or self._context.out_of_time:
                return
            for item in requests:
                progress = self._progress[item]
                progress.refusals = [item for item in progress.refusals if not item.throttled]
            next(pauses)

    def _call(self, batch: Batch, group: OfferingGroup) -> list[CallResult]:
        """Launch a batch, repeated while throttled, and halved for a quota.

        The throttle is inside EC2's answer. EC2 answers a fleet's token as it did before, so each
        repeat is a launch of its own. Other parts of a large job keep their instances meanwhile. A
        quota may do for one of the batch's jobs.
        """
        pauses = self._context.pauses()
        while True:
            result = self._call_once(batch, group)
            only_throttled = result.throttled and not (result.instances or result.error)
            if not only_throttled or self._context.out_of_time:
                break
            next(pauses)
        if len(batch.node_requests) == 1 or not result.over_quota:
            return [result]
        return [item for half in batching.halves(batch) for item in self._call(half, group)]

    def _call_once(self, batch: Batch, group: OfferingGroup) -> CallResult:
        """Make one call with the offerings that are still available.

        Offerings that refused any job since this launch began are left out.
        """
        unavailable = self._unavailable_offerings.entries()
        # Only a new refusal counts, not one that expired or was cleared since.
        available = tuple(
            item
            for item in group
            if unavailable.get(item.key) in (None, self._unavailable_at_start.get(item.key))
        )
        passed_refusals = tuple(
            _passed_refusal(item, unavailable[item.key]) for item in group if item not in available
        )
        if not available:
            return CallResult(batch, refusals=passed_refusals)
        jobs = [item.job for item in batch.node_requests if item.job is not None]
        try:
            request = self._request(batch, available)
            launch_result, start_time = launch_call.launch(self._context, request, jobs)
        except CloudError as error:
            refusals = tuple(Refusal(item, error) for item in available)
            self._remember_refusals(refusals, batch)
            return CallResult(batch, refusals=(*passed_refusals, *refusals), error=error)
        except (TooLate, StateError) as error:
            return CallResult(batch, refusals=passed_refusals, error=error)
        instances, refusals = launch_result.instances, launch_result.refusals
        final_instances = batching.final_instances(batch, instances)
        self._job_tracker.record_launched(instances, assignments(final_instances))
        if len(instances) < len(batch.nodes) and not refusals:
            text = f"{len(instances)} of {len(batch.nodes)} instances"
            shortage = error_codes.error(SHORTAGE_CODE, text)
            refusals = tuple(Refusal(item, shortage) for item in available)
        self._remember_refusals(refusals, batch)
        if not refusals:
            for item in available:
                self._unavailable_offerings.mark_available(item)
        return CallResult(batch, instances, start_time, (*passed_refusals, *refusals))

    def _request(self, batch: Batch, group: OfferingGroup) -> LaunchRequest:
        zone = group[0].zone
        own_template = self._pool.zone_templates.get(zone)
        return LaunchRequest(
            attempt=os.urandom(12).hex(),
            cluster=self._context.engine.config.cluster,
            pool=self._pool.name,
            partition=self._pool.partition,
            launch_template=own_template or self._pool.launch_template,
            subnet="" if own_template else self._pool.subnets[zone],
            offering=group[0],
            nodes=batch.nodes,
            others=group[1:],
            least=batch.min_instances,
        )

    def _remember_refusals(self, refusals: Sequence[Refusal], batch: Batch) -> None:
        """Remember which offerings are unavailable.

        A quota that refuses many jobs says nothing about one of them, so it is remembered for a job
        alone.
        """
        for item in refusals:
            if isinstance(item.error, QuotaExceeded) and len(batch.node_requests) > 1:
                continue
            self._unavailable_offerings.mark_unavailable(item.offering, item.error)

    def _allocate(self, results: Sequence[CallResult]) -> None:
        """Give whole jobs their instances; terminate the surplus.

        Nothing is left running for the other jobs. They give up if their error is final, or if a
        surplus instance could not be terminated. Otherwise they stay open for the next group.
        """
        instances: dict[NodeName, Instance] = {}
        start_times: dict[str, float] = {}
        final_ids: set[str] = set()
        unresolved: list[NodeRequest] = []
        for result in results:
            final = batching.final_instances(result.batch, result.instances)
            final_ids.update(item.id for item in final)
            instances |= {item.node: item for item in result.instances if item.node is not None}
            start_times |= {item.id: result.start_time for item in result.instances}
            for request in result.batch.node_requests:
                self._progress[request].refusals += result.refusals
                if result.is_final:
                    self._progress[request].error = result.error
                    unresolved.append(request)

        def not_booted_yet(instance_id: str) -> bool:
            age = self._context.engine.clock.monotonic() - start_times[instance_id]
            return age <= NOT_BOOTED_SECONDS

        reassignable = set(filter(not_booted_yet, start_times)) - final_ids
        allocation = batching.allocate(
            list(self._progress), instances, reassignable, set(unresolved)
        )
        complete, surplus = self._reassign(allocation, not_booted_yet)
        doubtful_nodes = self._terminate(surplus, allocation)
        for request in complete:
            del self._progress[request]
        self._job_tracker.record_outcomes(
            [RequestOutcome(request, tuple(assignments(own))) for request, own in complete.items()]
        )
        stopped = [item for item in self._progress if not doubtful_nodes.isdisjoint(item.nodes)]
        self._give_up([*stopped, *(item for item in unresolved if item in self._progress)])

    def _terminate(
        self, surplus: Sequence[Instance], allocation: InstanceAllocation
    ) -> set[NodeName | None]:
        """Terminate the surplus; return the nodes whose instance may still live."""
        unterminated_ids = launch_call.terminate(self._context, [item.id for item in surplus])
        surplus_nodes = {item.node for item in surplus}
        for request, progress in self._progress.items():
            progress.terminated_nodes += [node for node in request.nodes if node in surplus_nodes]
        # An instance whose retagging failed may have either name by now.
        reassigned = allocation.reassigned.items()
        return {item.node for item in surplus if item.id in unterminated_ids} | {
            node for instance_id, node in reassigned if instance_id in unterminated_ids
        }

    def _reassign(
        self, allocation: InstanceAllocation, not_booted_yet: Callable[[str], bool]
    ) -> tuple[dict[NodeRequest, tuple[Instance, ...]], list[Instance]]:
        """Retag the reassigned instances.

        Returns the complete jobs' instances and the surplus. A job whose retagging failed gets
        nothing.
        """

        def retag(request: NodeRequest) -> bool:
            by_id = {item.id: item for item in allocation.complete[request].values()}
            given = allocation.reassigned
            nodes = {key: given[key] for key in by_id if key in given}
            try:
                return not nodes or launch_call.retag_nodes(
                    self._context, nodes, by_id, not_booted_yet
                )
            except EngineError as error:
                self._progress[request].error = error
                return False

        complete: dict[NodeRequest, tuple[Instance, ...]] = {}
        surplus = list(allocation.surplus)
        # All at the same time, since each has only seconds.
        results = self._context.engine.workers.map(retag, allocation.complete)
        pairs = zip(allocation.complete.items(), results, strict=True)
        for (request, instances), is_retagged in pairs:
            if is_retagged:
                own = tuple(replace(item, node=node) for node, item in instances.items())
                complete[request] = own
            else:
                surplus += instances.values()
        return complete, surplus

    def _give_up(self, requests: Sequence[NodeRequest]) -> None:
        progress = {request: self._progress.pop(request) for request in dict.fromkeys(requests)}
        self._job_tracker.record_outcomes(
            [
                RequestOutcome(
                    request, (), tuple(item.refusals), item.error, tuple(item.terminated_nodes)
                )
                for request, item in progress.items()
            ]
        )


def _passed_refusal(offering: Offering, entry: Unavailability) -> Refusal:
    error = error_codes.error(entry.code, "EC2 refused it to another job a moment ago")
    return Refusal(offering, error, from_another_job=True)
