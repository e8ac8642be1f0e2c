"""Launch for jobs that want the same: nodes of one pool, in one fallback order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud import error_codes
from slurmplugins.errors import (
    CloudError,
    CloudUnreachable,
    Denied,
    EngineError,
    QuotaExceeded,
    StateError,
    Throttled,
    TooLate,
)
from slurmplugins.launch import batching
from slurmplugins.model.instance import assignments
from slurmplugins.model.launch import LaunchRequest, Refusal
from slurmplugins.state import unavailable_offerings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurmplugins.launch.batching import Batch, InstanceAllocation, NodeRequest
    from slurmplugins.launch.ec2_quotas import QuotaUsage
    from slurmplugins.launch.launch_call import LaunchCalls
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Assignment, Instance
    from slurmplugins.model.offering import Offering, OfferingGroup, Pool
    from slurmplugins.state.unavailable_offerings import Unavailability, UnavailableOfferings
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.workers import WorkerPool

NOT_BOOTED_SECONDS: Final = 5.0
"""Seconds after the request in which an instance can't have read its name yet. It may get another
name if the call for that leaves before then."""

SHORTAGE_CODE: Final = "InsufficientInstanceCapacity"
"""EC2's code for a shortage, used for a partial answer that has no code."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of one call."""

    batch: Batch
    instances: tuple[Instance, ...] = ()
    start_time: float = 0.0
    """The earliest monotonic time at which the instances may have been started."""
    refusals: tuple[Refusal, ...] = ()
    error: EngineError | None = None

    @property
    def is_final(self) -> bool:
        """Return whether another try would make it worse.

        The outcome is unknown, or the same everywhere.
        """
        return isinstance(self.error, CloudUnreachable | Denied | TooLate | StateError | Throttled)

    @property
    def throttled(self) -> bool:
        """Return whether EC2 answered, but throttled some of the offerings."""
        return any(_is_throttle(item) for item in self.refusals)


@dataclass(slots=True)
class RequestProgress:
    """A node request's refusals and errors up to now."""

    node_request: NodeRequest
    refusals: list[Refusal] = field(default_factory=list)
    error: EngineError | None = None
    terminated_nodes: list[NodeName] = field(default_factory=list)


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


class PoolLaunch:
    """Tries the pool's offerings in order until every job is complete or has failed.

    `decided` is called exactly once per job, as soon as its result is known.

    `named` is called, from any thread, with instances whose name is final. Their job is not decided
    then: it may still fail.
    """

    def __init__(
        self,
        *,
        cluster: str,
        pool: Pool,
        fallback_order: Sequence[OfferingGroup],
        node_requests: Sequence[NodeRequest],
        calls: LaunchCalls,
        workers: WorkerPool,
        unavailable: UnavailableOfferings,
        clock: Clock,
        new_launch_id: Callable[[], str],
        quotas: QuotaUsage,
        burst: float,
        on_outcomes: Callable[[Sequence[RequestOutcome]], None],
        on_assigned: Callable[[Sequence[Assignment]], None],
    ) -> None:
        self._cluster = cluster
        self._pool = pool
        self._fallback_order = fallback_order
        self._progress = {
            node_request: RequestProgress(node_request) for node_request in node_requests
        }
        self._calls = calls
        self._workers = workers
        self._unavailable_offerings = unavailable
        self._clock = clock
        self._new_launch_id = new_launch_id
        self._quotas = quotas
        self._burst = burst
        self._on_outcomes = on_outcomes
        self._on_assigned = on_assigned
        self._unavailable_at_start = unavailable.entries()

    def launch(self) -> None:
        """Try group after group of offerings until all jobs are decided."""
        offerings = [item for group in self._fallback_order for item in group]
        usable_offerings = set(
            unavailable_offerings.available_or_next(offerings, self._unavailable_at_start)
        )
        group_tried = False
        for group in self._fallback_order:
            usable = tuple(item for item in group if item in usable_offerings)
            if not usable:
                continue
            if not self._progress or (group_tried and self._calls.out_of_time):
                break
            group_tried = True
            self._try_group(usable)
        self._give_up(list(self._progress))

    def _try_group(self, group: OfferingGroup) -> None:
        """Ask one group for all open jobs, then retry throttled ones."""
        node_requests, pauses = list(self._progress), self._calls.pauses()
        while node_requests:
            calls = batching.batches(node_requests, fleet=len(group) > 1, burst=self._burst)
            batch_results = self._workers.map(
                lambda batch: self._call_or_halve(batch, group), calls
            )
            results = [result for batch_result in batch_results for result in batch_result]
            self._allocate(results)
            throttled_requests = (
                node_request
                for item in results
                if item.throttled
                for node_request in item.batch.node_requests
            )
            node_requests = [
                node_request
                for node_request in dict.fromkeys(throttled_requests)
                if node_request in self._progress
            ]
            if not node_requests or self._calls.out_of_time:
                return
            for node_request in node_requests:
                progress = self._progress[node_request]
                progress.refusals = [item for item in progress.refusals if not _is_throttle(item)]
            next(pauses)

    def _call_or_halve(self, batch: Batch, group: OfferingGroup) -> list[CallResult]:
        """Ask for a batch, and by halves where a quota refuses it.

        The quota may do for one of its jobs.
        """
        result = self._call_while_throttled(batch, group)
        if len(batch.node_requests) == 1 or not _is_over_quota(result):
            return [result]
        return [
            item for half in batching.halves(batch) for item in self._call_or_halve(half, group)
        ]

    def _call_while_throttled(self, batch: Batch, group: OfferingGroup) -> CallResult:
        """Repeat a call while its only result is a throttle.

        The throttle is inside EC2's answer. EC2 answers a fleet's token as it did before, so each
        repeat is an attempt of its own. Other parts of a large job keep their instances meanwhile.
        """
        pauses = self._calls.pauses()
        while True:
            result = self._call_once(batch, group)
            only_throttled = result.throttled and not (result.instances or result.error)
            if not only_throttled or self._calls.out_of_time:
                return result
            next(pauses)

    def _call_once(self, batch: Batch, group: OfferingGroup) -> CallResult:
        """Make one call with the offerings that are still available.

        Offerings that refused any job since this launch began are left out.
        """
        unavailable = self._unavailable_offerings.entries()
        # Only a new refusal counts: one that is over, or forgotten since, does not.
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
        request = self._request(batch, available)
        jobs = [
            node_request.job for node_request in batch.node_requests if node_request.job is not None
        ]
        try:
            launch_result, start_time = self._calls.launch(request, jobs)
        except CloudError as error:
            refusals = tuple(Refusal(item, error) for item in available)
            self._remember_refusals(refusals, batch)
            return CallResult(batch, refusals=(*passed_refusals, *refusals), error=error)
        except (TooLate, StateError) as error:
            return CallResult(batch, refusals=passed_refusals, error=error)
        self._quotas.add(launch_result.instances)
        refusals = launch_result.refusals
        if len(launch_result.instances) < len(batch.nodes) and not refusals:
            text = f"{len(launch_result.instances)} of {len(batch.nodes)} machines"
            refusals = tuple(
                Refusal(item, error_codes.error(SHORTAGE_CODE, text)) for item in available
            )
        self._remember_refusals(refusals, batch)
        if not refusals:
            for item in available:
                self._unavailable_offerings.mark_available(item)
        self._on_assigned(assignments(batching.final_instances(batch, launch_result.instances)))
        return CallResult(batch, launch_result.instances, start_time, (*passed_refusals, *refusals))

    def _request(self, batch: Batch, group: OfferingGroup) -> LaunchRequest:
        zone = group[0].zone
        own_template = self._pool.zone_templates.get(zone)
        return LaunchRequest(
            attempt=self._new_launch_id(),
            cluster=self._cluster,
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
            final_ids |= {
                item.id for item in batching.final_instances(result.batch, result.instances)
            }
            instances |= {item.node: item for item in result.instances if item.node is not None}
            start_times |= {item.id: result.start_time for item in result.instances}
            for node_request in result.batch.node_requests:
                self._progress[node_request].refusals += result.refusals
                if result.is_final:
                    self._progress[node_request].error = result.error
                    unresolved.append(node_request)

        def not_booted_yet(instance_id: str) -> bool:
            return self._clock.monotonic() - start_times[instance_id] <= NOT_BOOTED_SECONDS

        reassignable = set(filter(not_booted_yet, start_times)) - final_ids
        allocation = batching.allocate(
            list(self._progress), instances, reassignable, set(unresolved)
        )
        complete, surplus = self._reassign(allocation, not_booted_yet)
        unterminated_ids = self._calls.terminate(item.id for item in surplus)
        surplus_nodes = {item.node for item in surplus}
        for node_request, progress in self._progress.items():
            progress.terminated_nodes += [
                node for node in node_request.nodes if node in surplus_nodes
            ]
        unterminated_nodes = {item.node for item in surplus if item.id in unterminated_ids}
        # An instance whose renaming failed may have either name by now.
        unterminated_nodes |= {
            node for key, node in allocation.reassigned.items() if key in unterminated_ids
        }
        outcomes = [
            RequestOutcome(node_request, tuple(assignments(own_instances)))
            for node_request, own_instances in complete.items()
        ]
        for node_request in complete:
            del self._progress[node_request]
        self._on_outcomes(outcomes)
        stopped_requests = {
            node_request: None
            for node_request in self._progress
            if unterminated_nodes.intersection(node_request.nodes)
        }
        self._give_up(
            [
                *stopped_requests,
                *(node_request for node_request in unresolved if node_request in self._progress),
            ]
        )

    def _reassign(
        self, allocation: InstanceAllocation, not_booted_yet: Callable[[str], bool]
    ) -> tuple[dict[NodeRequest, tuple[Instance, ...]], list[Instance]]:
        """Rename the reassigned instances.

        Returns the complete jobs' instances and the surplus. A job whose renaming failed gets
        nothing.
        """

        def retag(node_request: NodeRequest) -> bool:
            by_id = {item.id: item for item in allocation.complete[node_request].values()}
            is_retagged = {
                instance_id: allocation.reassigned[instance_id]
                for instance_id in by_id
                if instance_id in allocation.reassigned
            }
            try:
                return not is_retagged or self._calls.retag_nodes(
                    is_retagged, by_id, not_booted_yet
                )
            except EngineError as error:
                self._progress[node_request].error = error
                return False

        complete: dict[NodeRequest, tuple[Instance, ...]] = {}
        surplus = list(allocation.surplus)
        # All at the same time, since each has only seconds.
        results = self._workers.map(retag, allocation.complete)
        for (node_request, instances), is_retagged in zip(
            allocation.complete.items(), results, strict=True
        ):
            if is_retagged:
                complete[node_request] = tuple(
                    replace(item, node=node) for node, item in instances.items()
                )
            else:
                surplus += instances.values()
        return complete, surplus

    def _give_up(self, node_requests: Sequence[NodeRequest]) -> None:
        outcomes = []
        for node_request in dict.fromkeys(node_requests):
            progress = self._progress.pop(node_request)
            outcomes.append(
                RequestOutcome(
                    node_request,
                    (),
                    tuple(progress.refusals),
                    progress.error,
                    tuple(progress.terminated_nodes),
                )
            )
        self._on_outcomes(outcomes)


def _is_over_quota(result: CallResult) -> bool:
    quota_refused = any(
        isinstance(item.error, QuotaExceeded) and not item.from_another_job
        for item in result.refusals
    )
    return quota_refused and not result.instances


def _is_throttle(refusal: Refusal) -> bool:
    return isinstance(refusal.error, Throttled)


def _passed_refusal(offering: Offering, entry: Unavailability) -> Refusal:
    error = error_codes.error(entry.code, "refused to another a moment ago")
    return Refusal(offering, error, from_another_job=True)
