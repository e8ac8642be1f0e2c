"""Pack many jobs' nodes into few calls, and allocate the instances to whole jobs. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud import tags
from slurmplugins.model import hostlist

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance

MAX_POOLED: Final = 250
"""Instances in a call for several jobs, or for a part of one job: a quarter of EC2's token bucket.
A call as large as the bucket must wait until the bucket is full."""

_SURE: Final = tags.MAX_VALUE - 64
"""Characters that fit into a tag in every case: the last name of a part may not fit."""

MAX_WHOLE: Final = 1000
"""Instances in the only call for a job. Such a call is better all or nothing than small."""


@dataclass(frozen=True, slots=True)
class Want:
    """The instances that one job needs of one pool (a node request)."""

    turn: int
    """The job's place in the queue."""
    job: int | None
    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A single call for instances."""

    wants: tuple[Want, ...]
    """The node requests that the call serves."""
    nodes: tuple[NodeName, ...]
    """All nodes of these requests, or a part of them when the job is larger than a call."""
    least: int
    """EC2 must start at least this many instances, or none."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """The allocation of instances to jobs."""

    filled: Mapping[Want, Mapping[NodeName, Instance]]
    """For each complete node request, its instances by node."""
    given: Mapping[str, NodeName] = field(default_factory=dict)
    """Reassigned instances, by id, with their new node. Each was launched for another node."""
    spare: tuple[Instance, ...] = ()
    """Surplus instances: no job can use them."""


def batches(wants: Sequence[Want], *, fleet: bool, burst: float = math.inf) -> tuple[Batch, ...]:
    """Pack the node requests into few calls, in queue order.

    A job is split over several calls only when one can't hold it. A call for several jobs must
    start enough instances for the smallest of them. A call for one job, or for a part of one, is
    all or nothing. `burst` is the largest call that EC2 grants; fleets are exempt.
    """
    most = MAX_WHOLE if fleet else max(1, int(min(burst, MAX_WHOLE)))
    pooled = min(MAX_POOLED, most)
    parts = tags.FLEET_PARTS if fleet else tags.MAX_PARTS
    found: list[Batch] = []
    held: list[Want] = []
    for want in wants:
        together = [node for item in (*held, want) for node in item.nodes]
        if held and not _fits(together, pooled, parts):
            found.append(_pooled(held))
            held = []
        if _fits(want.nodes, most, parts):
            held.append(want)
        else:
            split = _parts(want.nodes, pooled, parts)
            found += [Batch((want,), part, len(part)) for part in split]
    return (*found, _pooled(held)) if held else tuple(found)


def certain(batch: Batch, machines: Sequence[Instance]) -> tuple[Instance, ...]:
    """Return the instances whose requests lack none in this call.

    None of these instances is ever given another name.
    """
    there = {item.node for item in machines}
    asked = set(batch.nodes)
    whole = {
        node
        for want in batch.wants
        if there.issuperset(mine := asked.intersection(want.nodes))
        for node in mine
    }
    return tuple(item for item in machines if item.node in whole)


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """Split the same jobs into two calls, in queue order."""
    middle = len(batch.wants) // 2
    return _pooled(batch.wants[:middle]), _pooled(batch.wants[middle:])


def settle(
    wants: Sequence[Want],
    machines: Mapping[NodeName, Instance],
    young: AbstractSet[str],
    lost: AbstractSet[Want] = frozenset(),
) -> Settlement:
    """Allocate instances to whole jobs in queue order.

    A job keeps the instances that were launched for its own nodes. Instances of incomplete jobs go
    to the next job that they complete. Only `young` instances (ids) are reassigned: they can't have
    read their name yet. `lost` jobs get nothing, since their missing nodes may have instances
    unknown to us.
    """
    filled: dict[Want, dict[NodeName, Instance]] = {}
    short: list[Want] = []
    for want in wants:
        mine = {node: machines[node] for node in want.nodes if node in machines}
        if len(mine) == len(want.nodes):
            filled[want] = mine
        else:
            short.append(want)
    left = {node: machines[node] for want in short for node in want.nodes if node in machines}
    given: dict[str, NodeName] = {}
    spare = dict.fromkeys(node for node, item in left.items() if item.id in young)
    for want in short:
        if want in lost:
            continue
        missing = [node for node in want.nodes if node not in left]
        own = set(want.nodes)
        others = list(islice((node for node in spare if node not in own), len(missing)))
        if len(others) < len(missing):
            continue
        for node in (*want.nodes, *others):
            spare.pop(node, None)
        filled[want] = {node: left.pop(node) for node in want.nodes if node in left}
        for node, other in zip(missing, others, strict=True):
            filled[want][node] = left.pop(other)
            given[filled[want][node].id] = node
    return Settlement(filled, given, tuple(left.values()))


def _pooled(wants: Sequence[Want]) -> Batch:
    nodes = tuple(node for want in wants for node in want.nodes)
    return Batch(tuple(wants), nodes, min(len(want.nodes) for want in wants))


def _fits(nodes: Sequence[NodeName], most: int, parts: int) -> bool:
    if len(nodes) > most:
        return False
    if sum(map(len, nodes)) + len(nodes) <= parts * _SURE:
        return True
    return len(hostlist.hostlists(nodes, characters=tags.MAX_VALUE)) <= parts


def _parts(nodes: Sequence[NodeName], most: int, parts: int) -> Iterator[tuple[NodeName, ...]]:
    rest = tuple(nodes)
    while rest:
        size = min(most, len(rest))
        while not _fits(rest[:size], most, parts):
            size = max(1, size * 3 // 4)
        yield rest[:size]
        rest = rest[size:]
