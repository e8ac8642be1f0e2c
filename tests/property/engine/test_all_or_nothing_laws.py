"""Laws of requests that share nodes and fail together.

They hold for any requests, in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, strategies as st

from slurmplugins.launch import all_or_nothing
from slurmplugins.launch.all_or_nothing import RequestDecider
from slurmplugins.model import hostlist
from slurmplugins.model.launch import JobRequest

if TYPE_CHECKING:
    from slurmplugins.model.hostlist import NodeName

NODES = hostlist.expand("gpu-[1-6]")
SOME = st.lists(st.sampled_from(NODES), min_size=1, max_size=4, unique=True)
JOBS = st.lists(st.tuples(SOME, st.none() | st.integers(1, 3)), min_size=1, max_size=6)
"""The nodes of each job, and its het job."""

Jobs = list[tuple[list["NodeName"], int | None]]


def asked(jobs: Jobs) -> tuple[JobRequest, ...]:
    """Return the jobs' requests as the resume file's reader makes them.

    The first job that lists a node requests it; later jobs share it.
    """
    asks = []
    brought: set[NodeName] = set()
    for number, (nodes, whole) in enumerate(jobs, 100):
        mine = tuple(node for node in nodes if node not in brought)
        shared = tuple(node for node in nodes if node in brought)
        brought.update(nodes)
        asks.append(JobRequest(number, mine, shared_nodes=shared, het_job=whole))
    return tuple(asks)


def wanted(asks: tuple[JobRequest, ...]) -> dict[all_or_nothing.RequestId, set[NodeName]]:
    found: dict[all_or_nothing.RequestId, set[NodeName]] = {}
    for ask in asks:
        found.setdefault(all_or_nothing.request_id(ask), set()).update(ask.all_nodes)
    return found


@given(JOBS, st.sets(st.sampled_from(NODES)), st.randoms(), st.data())
def test_each_request_is_decided_once_and_gets_all_its_nodes_or_none(
    jobs: Jobs, lacking: set[NodeName], order: object, data: st.DataObject
):
    asks = asked(jobs)
    known = RequestDecider(asks)
    requests = wanted(asks)
    barred = data.draw(st.sets(st.sampled_from(sorted(requests))))
    told = [*known.fail(barred)]
    nodes = list({node for ask in asks for node in ask.all_nodes})
    order.shuffle(nodes)  # type: ignore[attr-defined]
    while nodes:
        batch = [nodes.pop() for _ in range(data.draw(st.integers(1, len(nodes))))]
        for had in (True, False):
            told += known.record([n for n in batch if (n not in lacking) == had], served=had)
    assert sorted(fate.request for fate in told) == sorted(requests)
    stands = {fate.request for fate in told if fate.is_complete}
    assert stands == {
        request
        for request, mine in requests.items()
        if request not in barred and mine.isdisjoint(lacking)
    }
    kept = {node for request in stands for node in requests[request]}
    freed = [node for fate in told for node in fate.freed_nodes]
    assert kept.isdisjoint(freed), "a request that stands loses no node"
    assert kept.union(freed) == set.union(*requests.values()), "no node stays for nobody"
    for fate in told:
        own = requests[fate.request]
        assert own.issuperset(fate.freed_nodes)


@given(JOBS, st.data())
def test_what_is_left_without_some_requests_brings_each_node_once_and_to_all_that_wait(
    jobs: Jobs, data: st.DataObject
):
    asks = asked(jobs)
    failed = data.draw(st.sets(st.sampled_from(sorted(wanted(asks)))))
    left = all_or_nothing.drop_failed(asks, failed)
    expected = {key: nodes for key, nodes in wanted(asks).items() if key not in failed}
    assert wanted(left) == expected
    brought = [node for ask in left for node in ask.nodes]
    assert sorted(brought) == sorted(set().union(*expected.values()) if expected else [])
    seen: set[NodeName] = set()
    for ask in left:
        assert seen.issuperset(ask.shared_nodes), "it is brought by a job before"
        seen.update(ask.nodes)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=5), st.integers(0, 130))
def test_slurmctld_is_asked_about_jobs_that_may_be_components_of_one(
    numbers: list[int], further: int
):
    asks = [JobRequest(number, NODES[:1]) for number in {*numbers, numbers[0] + further}]
    near = any(
        0 < second.job - first.job < all_or_nothing.MAX_COMPONENTS  # type: ignore[operator]
        for first in asks
        for second in asks
    )
    assert all_or_nothing.may_have_het_jobs(asks) == near
