"""Launch the instances of many jobs: equal ones in common calls, and each job all or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slurmplugins.launch.batching import NodeRequest
from slurmplugins.launch.launch_call import LaunchCalls
from slurmplugins.launch.pool_launch import PoolLaunch, RequestOutcome
from slurmplugins.state.launch_budget_file import StartedInstances

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from slurmplugins.cloud.port import Cloud
    from slurmplugins.errors import NotTerminated
    from slurmplugins.launch.ec2_quotas import QuotaUsage
    from slurmplugins.launch.request_tracker import JobTracker
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.launch import JobLaunch, PoolRequest
    from slurmplugins.model.offering import OfferingGroup
    from slurmplugins.state.journal import Journal
    from slurmplugins.state.launch_budget_file import LaunchBudget
    from slurmplugins.state.unavailable_offerings import UnavailableOfferings
    from slurmplugins.system.clock import Clock
    from slurmplugins.system.logger import Log
    from slurmplugins.system.workers import WorkerPool

NO_UNTERMINATED: Final[Mapping[NodeName, NotTerminated]] = MappingProxyType({})


class Launcher:
    """Launches the instances of one run's jobs."""

    def __init__(
        self,
        *,
        cluster: str,
        cloud: Cloud,
        journal: Journal,
        unavailable_offerings: UnavailableOfferings,
        clock: Clock,
        log: Log,
        # Returns a new attempt id.
        new_launch_id: Callable[[], str],
        # Returns numbers in [0, 1).
        jitter: Callable[[], float],
        # The monotonic time after which no further offering is tried.
        deadline: float,
        # The monotonic time after which a call that waited for its turn is not made.
        call_deadline: float,
        workers: WorkerPool,
        quotas: QuotaUsage,
        launch_budget: LaunchBudget,
        # Instances that EC2 starts at once.
        burst: float,
    ) -> None:
        self._cluster = cluster
        self._cloud = cloud
        self._journal = journal
        self._unavailable_offerings = unavailable_offerings
        self._clock = clock
        self._log = log
        self._new_launch_id = new_launch_id
        self._jitter = jitter
        self._deadline = deadline
        self._call_deadline = call_deadline
        self._workers = workers
        self._quotas = quotas
        self._launch_budget = launch_budget
        self._burst = burst
        self.started_instances = StartedInstances()

    def launch(
        self,
        jobs: Sequence[JobLaunch],
        process_id: str,
        job_tracker: JobTracker,
        unterminated: Mapping[NodeName, NotTerminated] = NO_UNTERMINATED,
    ) -> None:
        """Launch instances for every node of each job.

        Each job's result goes to the board: its instances, or the reason why it has none. `kept`
        has nodes whose instance should end and lives. A request with one of them gets nothing.
        """
        calls = self._calls(process_id)
        jobs = _without_unterminated(jobs, job_tracker, unterminated)
        planned_requests = [
            _PlannedRequest(NodeRequest(queue_position, job.job, pool_request.nodes), pool_request)
            for queue_position, job in enumerate(jobs)
            for pool_request in job.pool_requests
        ]
        planned_requests = (
            _without_doomed(planned_requests, job_tracker) if unterminated else planned_requests
        )
        first_requests, last_requests = _split_unlikely(
            planned_requests, job_tracker, self._unavailable_offerings.entries()
        )
        postponed = {*first_requests, *last_requests}
        other_requests = [item for item in planned_requests if item not in postponed]

        def launch_in_turn() -> None:
            self._launch_pools(first_requests, calls, job_tracker)
            self._launch_pools(_without_doomed(last_requests, job_tracker), calls, job_tracker)

        tasks = [
            lambda: self._launch_pools(other_requests, calls, job_tracker),
            *([launch_in_turn] if first_requests else []),
        ]
        self._workers.map(lambda work: work(), tasks)

    def _launch_pools(
        self,
        planned_requests: Sequence[_PlannedRequest],
        calls: LaunchCalls,
        job_tracker: JobTracker,
    ) -> None:
        by_group: dict[tuple[str, tuple[OfferingGroup, ...]], list[_PlannedRequest]] = {}
        for item in planned_requests:
            by_group.setdefault(
                (item.pool_request.pool.name, item.pool_request.fallback_order), []
            ).append(item)
        pool_launches = [
            PoolLaunch(
                cluster=self._cluster,
                pool=items[0].pool_request.pool,
                fallback_order=fallback_order,
                node_requests=[item.node_request for item in items],
                calls=calls,
                workers=self._workers,
                unavailable=self._unavailable_offerings,
                clock=self._clock,
                new_launch_id=self._new_launch_id,
                quotas=self._quotas,
                burst=self._burst,
                on_outcomes=job_tracker.record_outcomes,
                on_assigned=job_tracker.on_assigned,
            )
            for (_, fallback_order), items in by_group.items()
        ]
        self._workers.map(PoolLaunch.launch, pool_launches)

    def terminate(self, ids: Sequence[str], process_id: str) -> None:
        """Terminate surplus instances; reconcile handles those that still live."""
        self._calls(process_id).terminate(ids)

    def _calls(self, process_id: str) -> LaunchCalls:
        return LaunchCalls(
            process_id=process_id,
            cloud=self._cloud,
            journal=self._journal,
            clock=self._clock,
            log=self._log,
            jitter=self._jitter,
            deadline=self._deadline,
            call_deadline=self._call_deadline,
            launch_budget=self._launch_budget,
            started_instances=self.started_instances,
        )


@dataclass(frozen=True, eq=False, slots=True)
class _PlannedRequest:
    """A node request, and the plan's ask for it."""

    node_request: NodeRequest
    pool_request: PoolRequest


def _without_unterminated(
    jobs: Sequence[JobLaunch],
    job_tracker: JobTracker,
    unterminated: Mapping[NodeName, NotTerminated],
) -> list[JobLaunch]:
    """Fail the jobs that have a kept node; return the others."""
    remaining: list[JobLaunch] = []
    for job in jobs:
        node = next(
            (
                node
                for pool_request in job.pool_requests
                for node in pool_request.nodes
                if node in unterminated
            ),
            None,
        )
        if node is None:
            remaining.append(job)
            continue
        node_requests = [
            NodeRequest(0, job.job, pool_request.nodes) for pool_request in job.pool_requests
        ]
        job_tracker.record_outcomes(
            [
                RequestOutcome(node_request, error=unterminated[node])
                for node_request in node_requests
            ]
        )
    return remaining


def _without_doomed(
    planned_requests: Sequence[_PlannedRequest], job_tracker: JobTracker
) -> list[_PlannedRequest]:
    """Drop node requests that help no request any more.

    The board hears of them. Returns the others.
    """
    doomed = {item for item in planned_requests if job_tracker.doomed(item.node_request.nodes)}
    job_tracker.record_outcomes([RequestOutcome(item.node_request) for item in doomed])
    return [item for item in planned_requests if item not in doomed]


def _split_unlikely(
    planned_requests: Sequence[_PlannedRequest],
    job_tracker: JobTracker,
    unavailable: Container[str],
) -> tuple[list[_PlannedRequest], list[_PlannedRequest]]:
    """Choose the node requests to try first and last.

    Both belong to requests that will hardly get all their nodes. Offerings that were refused
    everywhere a moment ago are tried first. The rest of such a request comes last: its instances
    would only be terminated again, and their first minute is billed.
    """
    unlikely = {
        item: None
        for item in planned_requests
        if all(
            offering.key in unavailable
            for group in item.pool_request.fallback_order
            for offering in group
        )
    }
    if not unlikely:
        return [], []
    unlikely_ids = {
        request_id
        for item in unlikely
        for request_id in job_tracker.requests(item.node_request.nodes)
    }
    last_requests = [
        item
        for item in planned_requests
        if item not in unlikely
        and unlikely_ids.issuperset(job_tracker.requests(item.node_request.nodes))
    ]
    waiting_ids = {
        request_id
        for item in last_requests
        for request_id in job_tracker.requests(item.node_request.nodes)
    }
    first_requests = [
        item for item in unlikely if waiting_ids & job_tracker.requests(item.node_request.nodes)
    ]
    return first_requests, last_requests
