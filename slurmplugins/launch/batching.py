"""Pack many jobs' nodes into few calls, and allocate the instances to whole jobs. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud import tags
from slurmplugins.errors import (
    CloudUnreachable,
    Denied,
    QuotaExceeded,
    StateError,
    Throttled,
    TooLate,
)
from slurmplugins.model import hostlist

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set as AbstractSet

    from slurmplugins.errors import EngineError
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.launch import NodeRequest, Refusal

MAX_SHARED_BATCH: Final = 250
"""Instances in a call for several jobs, or for a part of one job: a quarter of EC2's token bucket.
A call as large as the bucket must wait until the bucket is full."""

_SURE_CHARACTERS: Final = tags.MAX_VALUE - 64
"""Characters that fit into a tag in every case: the last name of a part may not fit."""

MAX_JOB_BATCH: Final = 1000
"""Instances in the only call for a job. Such a call is better all or nothing than small."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A single call for instances."""

    node_requests: tuple[NodeRequest, ...]
    """The node requests that the call serves."""
    nodes: tuple[NodeName, ...]
    """All nodes of these requests, or a part of them when the job is larger than a call."""
    min_instances: int
    """EC2 must start at least this many instances, or none."""


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
        return any(item.throttled for item in self.refusals)

    @property
    def over_quota(self) -> bool:
        """Return whether a quota refused the whole call."""
        errors = (item.error for item in self.refusals if not item.from_another_job)
        return not self.instances and any(isinstance(item, QuotaExceeded) for item in errors)


@dataclass(frozen=True, slots=True)
class InstanceAllocation:
    """The allocation of instances to jobs."""

    complete: Mapping[NodeRequest, Mapping[NodeName, Instance]]
    """For each complete node request, its instances by node."""
    reassigned: Mapping[str, NodeName] = field(default_factory=dict)
    """Reassigned instances, by id, with their new node. Each was launched for another node."""
    surplus: tuple[Instance, ...] = ()
    """Surplus instances: no job can use them."""


def batches(
    node_requests: Sequence[NodeRequest], *, fleet: bool, burst: float = math.inf
) -> tuple[Batch, ...]:
    """Pack the node requests into few calls, in queue order.

    A job is split over several calls only when one can't hold it. A call for several jobs must
    start enough instances for the smallest of them. A call for one job, or for a part of one, is
    all or nothing. `burst` is the largest call that EC2 grants; fleets are exempt.
    """
    max_size = MAX_JOB_BATCH if fleet else max(1, int(min(burst, MAX_JOB_BATCH)))
    max_shared = min(MAX_SHARED_BATCH, max_size)
    max_tags = tags.FLEET_PARTS if fleet else tags.MAX_PARTS
    packed: list[Batch] = []
    pending: list[NodeRequest] = []
    for node_request in node_requests:
        batch_nodes = [node for item in (*pending, node_request) for node in item.nodes]
        if pending and not _fits(batch_nodes, max_shared, max_tags):
            packed.append(_shared_batch(pending))
            pending = []
        if _fits(node_request.nodes, max_size, max_tags):
            pending.append(node_request)
        else:
            job_parts = _split_nodes(node_request.nodes, max_shared, max_tags)
            packed += [Batch((node_request,), part, len(part)) for part in job_parts]
    return (*packed, _shared_batch(pending)) if pending else tuple(packed)


def final_instances(batch: Batch, instances: Sequence[Instance]) -> tuple[Instance, ...]:
    """Return the instances whose requests lack none in this call.

    None of these instances is ever reassigned.
    """
    launched_nodes = {item.node for item in instances}
    batch_nodes = set(batch.nodes)
    complete_nodes = {
        node
        for node_request in batch.node_requests
        if launched_nodes.issuperset(own_nodes := batch_nodes.intersection(node_request.nodes))
        for node in own_nodes
    }
    return tuple(item for item in instances if item.node in complete_nodes)


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """Split the same jobs into two calls, in queue order."""
    middle = len(batch.node_requests) // 2
    return _shared_batch(batch.node_requests[:middle]), _shared_batch(batch.node_requests[middle:])


def allocate(
    node_requests: Sequence[NodeRequest],
    instances: Mapping[NodeName, Instance],
    not_booted_yet: AbstractSet[str],
    unresolved: AbstractSet[NodeRequest] = frozenset(),
) -> InstanceAllocation:
    """Allocate instances to whole jobs in queue order.

    A job keeps the instances that were launched for its own nodes. Instances of incomplete jobs go
    to the next job that they complete. Only instances in `not_booted_yet` (ids) are reassigned:
    they can't have read their name yet. `unresolved` requests get nothing, since their missing
    nodes may have instances unknown to us.
    """
    complete = _complete_requests(node_requests, instances)
    incomplete = [item for item in node_requests if item not in complete]
    remaining = {
        node: instances[node]
        for node_request in incomplete
        for node in node_request.nodes
        if node in instances
    }
    reassigned: dict[str, NodeName] = {}
    reassignable = dict.fromkeys(
        node for node, item in remaining.items() if item.id in not_booted_yet
    )
    for node_request in incomplete:
        if node_request in unresolved:
            continue
        missing_nodes = [node for node in node_request.nodes if node not in remaining]
        own_nodes = set(node_request.nodes)
        donors = list(
            islice((node for node in reassignable if node not in own_nodes), len(missing_nodes))
        )
        if len(donors) < len(missing_nodes):
            continue
        for node in (*node_request.nodes, *donors):
            reassignable.pop(node, None)
        complete[node_request] = {
            node: remaining.pop(node) for node in node_request.nodes if node in remaining
        }
        for node, donor in zip(missing_nodes, donors, strict=True):
            complete[node_request][node] = remaining.pop(donor)
            reassigned[complete[node_request][node].id] = node
    return InstanceAllocation(complete, reassigned, tuple(remaining.values()))


def _complete_requests(
    node_requests: Iterable[NodeRequest], instances: Mapping[NodeName, Instance]
) -> dict[NodeRequest, dict[NodeName, Instance]]:
    """Return the requests for which no instance is missing, with their instances."""
    return {
        node_request: {node: instances[node] for node in node_request.nodes}
        for node_request in node_requests
        if all(node in instances for node in node_request.nodes)
    }


def _shared_batch(node_requests: Sequence[NodeRequest]) -> Batch:
    nodes = tuple(node for node_request in node_requests for node in node_request.nodes)
    return Batch(
        tuple(node_requests), nodes, min(len(node_request.nodes) for node_request in node_requests)
    )


def _fits(nodes: Sequence[NodeName], max_size: int, max_tags: int) -> bool:
    if len(nodes) > max_size:
        return False
    if sum(map(len, nodes)) + len(nodes) <= max_tags * _SURE_CHARACTERS:
        return True
    return len(hostlist.hostlists(nodes, characters=tags.MAX_VALUE)) <= max_tags


def _split_nodes(
    nodes: Sequence[NodeName], max_size: int, max_tags: int
) -> Iterator[tuple[NodeName, ...]]:
    remaining = tuple(nodes)
    while remaining:
        size = min(max_size, len(remaining))
        while not _fits(remaining[:size], max_size, max_tags):
            size = max(1, size * 3 // 4)
        yield remaining[:size]
        remaining = remaining[size:]
