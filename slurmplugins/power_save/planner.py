"""Plan what ResumeProgram does, from Slurm's requests and EC2's instances. No input or output."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import NotTerminated
from slurmplugins.launch import fallback
from slurmplugins.launch.fallback import Spend, spend_by_pool
from slurmplugins.launch.request_tracker import nodes_by_quota
from slurmplugins.model.instance import Assignment, InstanceState, instances_by_node
from slurmplugins.model.launch import (
    NOT_AWAITED,
    UNRESOLVED_LAUNCH,
    Failure,
    JobLaunch,
    NodeRequest,
    ResumePlan,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from slurmplugins.config.burst import BurstConfig
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance, Pool
    from slurmplugins.model.launch import JobRequest
    from slurmplugins.model.node import Node
    from slurmplugins.state.journal_view import JournalView


UNKNOWN_NODE: Final = "unknown-node"

NO_OFFERING: Final = "no-offering"
UNCLEAR_INSTANCE: Final = "instance-unclear"


def plan_resume(
    job_requests: Sequence[JobRequest],
    instances: Sequence[Instance],
    view: JournalView,
    config: BurstConfig,
    now: float,
    *,
    queue_seconds: Mapping[int, float] | None = None,
) -> ResumePlan:
    """Adopt existing instances and plan the missing ones, job by job.

    `view` must be read after `instances`. An instance launched in between is then in one of the
    two, and no node gets a second one. `queue_seconds` maps a job to its seconds in the queue.
    """
    builder = _PlanBuilder(
        config, view, view.with_current_nodes(instances), now, queue_seconds or {}
    )
    for job_request in job_requests:
        builder.add(job_request)
    return ResumePlan(
        adoptions=tuple(builder.adoptions),
        launches=tuple(builder.launches),
        stale_instances=tuple(builder.stale_instances),
        failures=tuple(builder.failures),
        claimed_by_others=tuple(builder.claimed_by_others),
        job_requests=tuple(job_requests),
        unterminated_instances=tuple(builder.unterminated_instances),
        nodes_by_quota=nodes_by_quota(
            view.with_current_nodes(instances), view.termination_causes, config.static_nodes
        ),
    )


def still_awaited(
    job_requests: Sequence[JobRequest], plan: ResumePlan, nodes: Mapping[NodeName, Node]
) -> tuple[list[JobRequest], list[Failure]]:
    """Drop the requests that Slurm no longer waits for.

    `nodes` are the plan's nodes, as Slurm has them now. Returns the remaining requests, and a
    failure for each dropped one.

    - A request is dropped if one of its nodes is powered down or DOWN: its job has ended or was
      requeued. It is also dropped if a node without an instance is not powering up.
    - A node that is up works on its stale instance. It keeps that instance and leaves the request.
    - A node whose record can't be read counts as awaited, since Slurm has requested it. Its stale
      instance, if any, is not terminated: the request is dropped.
    """
    up_nodes = {
        name
        for name, node in nodes.items()
        if not (node.powering_up or node.powering_off or node.down)
    }
    working_nodes = up_nodes.intersection(
        item.node for item in plan.stale_instances if item.node is not None
    )
    awaited_nodes = {name for name, node in nodes.items() if node.powering_up} | working_nodes
    awaited_nodes |= up_nodes.intersection(item.node for item in plan.adoptions)
    unreadable_nodes = {name for name, node in nodes.items() if not node.readable}
    awaited_nodes |= unreadable_nodes.difference(
        item.node for item in plan.stale_instances if item.node is not None
    )
    lost_nodes = set(plan.nodes_to_claim) - awaited_nodes
    remaining: list[JobRequest] = []
    failures: list[Failure] = []
    for job_request in job_requests:
        if (
            lost_node := next((node for node in job_request.nodes if node in lost_nodes), None)
        ) is None:
            nodes_left = tuple(node for node in job_request.nodes if node not in working_nodes)
            shared_nodes_left = tuple(
                node for node in job_request.shared_nodes if node not in working_nodes
            )
            remaining.append(replace(job_request, nodes=nodes_left, shared_nodes=shared_nodes_left))
        else:
            text = f"slurmctld no longer waits for {lost_node}"
            failures.append(Failure(job_request.job, job_request.nodes, NOT_AWAITED, message=text))
    return remaining, failures


class _PlanBuilder:
    """The builder of a plan; `add` plans one job's request."""

    def __init__(
        self,
        config: BurstConfig,
        view: JournalView,
        instances: Sequence[Instance],
        now: float,
        queue_seconds: Mapping[int, float],
    ) -> None:
        self._config = config
        self._view = view
        self._instances = instances_by_node(instances)
        self._now = now
        self._queue_seconds = queue_seconds
        self._spend = spend_by_pool(instances)
        ids = {item.id for item in instances}
        recent_launches = view.recent_launches.values()
        self._unlisted_launches = {
            item.node: item for item in recent_launches if item.instance_id not in ids
        }
        recent_terminations = view.recent_terminations.values()
        self._unlisted_terminations = {
            item.node: item for item in recent_terminations if item.instance_id not in ids
        }
        self.adoptions: list[Assignment] = []
        self.launches: list[JobLaunch] = []
        self.stale_instances: list[Instance] = []
        self.failures: list[Failure] = []
        self.claimed_by_others: list[NodeName] = []
        self.unterminated_instances: list[Instance] = []

    def add(self, job_request: JobRequest) -> None:
        failure = _rejection(job_request, self._instances, self._view, self._config, self._now)
        failure = failure or self._unlisted_termination(job_request)
        if failure is not None:
            self.failures.append(failure)
            return
        missing_nodes = [node for node in job_request.nodes if not self._has_instance(node)]
        if not missing_nodes:
            return
        node_requests = tuple(
            self._node_request(job_request, pool, pool_nodes)
            for pool, pool_nodes in self._by_pool(missing_nodes)
        )
        empty_pool = next(
            (item.pool.name for item in node_requests if not item.fallback_order), None
        )
        if empty_pool is not None:
            text = f"the policy leaves no offering of pool {empty_pool} to this job now"
            self.failures.append(
                Failure(job_request.job, job_request.nodes, NO_OFFERING, message=text)
            )
            return
        self.launches.append(JobLaunch(job_request.job, node_requests, job_request.nodes))

    def _node_request(
        self, job_request: JobRequest, pool: Pool, nodes: tuple[NodeName, ...]
    ) -> NodeRequest:
        """Return the request with the offerings that policy and spot share allow.

        The policy is the partition's, `max_spot_share` is the pool's. The launch counts in the
        share that later jobs see.
        """
        partition = job_request.partition or pool.partition
        queue_seconds = (
            0.0 if job_request.job is None else self._queue_seconds.get(job_request.job, 0.0)
        )
        fallback_order = fallback.fallback_order(
            pool, self._config.policy_of(partition), queue_seconds
        )
        spend = self._spend.get(pool.name, Spend())
        spend_after, fallback_order = fallback.apply_spot_limit(
            spend, fallback_order, len(nodes), pool.max_spot_share
        )
        self._spend[pool.name] = spend_after
        return NodeRequest(job_request.job, nodes, pool, fallback_order)

    def _by_pool(self, nodes: Iterable[NodeName]) -> Iterator[tuple[Pool, tuple[NodeName, ...]]]:
        nodes_by_pool: dict[str, list[NodeName]] = defaultdict(list)
        for node in nodes:
            nodes_by_pool[self._config.pool_by_node[node]].append(node)
        for pool, pool_nodes in nodes_by_pool.items():
            yield self._config.pools[pool], tuple(pool_nodes)

    def _has_instance(self, node: NodeName) -> bool:
        """Return whether the node has an instance, or another process provides one.

        Records the instance as adopted, or as one to replace or terminate.
        """
        if node in self._view.claimed_nodes:
            self.claimed_by_others.append(node)
            return True
        instances = self._instances.get(node, ())
        usable, stale = _split_usable(instances, self._view, self._config, self._now)
        self.stale_instances += stale
        if usable:
            self.adoptions.append(Assignment(node, usable[0].id, usable[0].address, usable[0].type))
        elif node in self._unlisted_launches:
            self.adoptions.append(self._unlisted_launches[node])
        else:
            termination_causes = self._view.termination_causes
            self.unterminated_instances += [
                item for item in instances if item.state.live and item.id in termination_causes
            ]
            return False
        return True

    def _unlisted_termination(self, job_request: JobRequest) -> Failure | None:
        """Return a failure if an unlisted instance must still be terminated.

        Its termination was decided, but EC2 can't carry it out before it lists the instance.
        Nothing is launched beside it.
        """
        for node in job_request.nodes:
            assignment = self._unlisted_terminations.get(node)
            if (
                assignment is None
                or node in self._view.claimed_nodes
                or node in self._unlisted_launches
            ):
                continue
            instances = self._instances.get(node, ())
            if not _split_usable(instances, self._view, self._config, self._now)[0]:
                subject = f"{assignment.instance_id} of {node}"
                text = f"{subject} is to be terminated, and EC2 does not list it yet"
                return Failure(
                    job_request.job, job_request.nodes, NotTerminated.reason_code, message=text
                )
        return None


def _rejection(
    job_request: JobRequest,
    by_node: Mapping[NodeName, Sequence[Instance]],
    view: JournalView,
    config: BurstConfig,
    now: float,
) -> Failure | None:
    """Return the failure of a job that must launch nothing, else None."""
    unknown_nodes = [node for node in job_request.nodes if config.pool_of(node) is None]
    if unknown_nodes:
        text = f"burst.json has no node {unknown_nodes[0]}"
        # slurm.conf and burst.json come from one cluster.yaml: a person must deploy it again.
        return Failure(job_request.job, job_request.nodes, UNKNOWN_NODE, message=text, hold=True)
    unresolved_nodes = [
        node
        for node in job_request.nodes
        if any(item.state.live and item.id in view.unreadable_ids for item in by_node.get(node, ()))
        or (
            (
                node in view.claimed_to_resolve
                or (node in view.unresolved_nodes and node not in view.claimed_nodes)
            )
            # Only a usable instance can be the unanswered launch's: a stale one is older.
            and not _split_usable(by_node.get(node, ()), view, config, now)[0]
        )
    ]
    if unresolved_nodes:
        node = unresolved_nodes[0]
        text = f"an earlier launch for {node} got no answer; its outcome is known within minutes"
        return Failure(job_request.job, job_request.nodes, UNRESOLVED_LAUNCH, message=text)
    instances = (item for node in job_request.nodes for item in by_node.get(node, ()))
    unclear_instance = next(
        (item for item in instances if item.state is InstanceState.UNCLEAR), None
    )
    if unclear_instance is not None:  # it may run a job now, or later
        subject = f"{unclear_instance.id}, of {unclear_instance.node},"
        state = unclear_instance.unclear
        text = f"{subject} is in a state that the toolkit doesn't know: {state!r}"
        return Failure(job_request.job, job_request.nodes, UNCLEAR_INSTANCE, message=text)
    return None


def _split_usable(
    instances: Iterable[Instance], view: JournalView, config: BurstConfig, now: float
) -> tuple[list[Instance], list[Instance]]:
    """Split live instances into usable ones and stale ones.

    slurmctld accepts a node that is powering up only if it booted after the power-up request. So an
    instance from before that request never registers, however young it is. An instance of
    another pool has another shape.
    """
    live = [
        item for item in instances if item.state.live and item.id not in view.termination_causes
    ]
    usable = [
        item
        for item in live
        if view.age(item, now) < config.resume_timeout
        and item.id not in view.powered_down_ids
        and (item.node is None or item.pool == config.pool_by_node.get(item.node))
    ]
    return usable, [item for item in live if item not in usable]
