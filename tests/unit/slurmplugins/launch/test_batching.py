"""Many jobs in few calls, and instances allocated to whole jobs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from slurmplugins.cloud.rate_limit import INSTANCES
from slurmplugins.cloud.tags import FLEET_PARTS, MAX_PARTS, node_of, node_tags, order_tags
from slurmplugins.launch import batching
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Instance, InstanceState, Lifecycle, Pool
from slurmplugins.model.launch import NodeRequest

N = hostlist.expand("gpu-[0001-4000]")
POOL = Pool("gpu", N, "spot", "demo-gpu", {}, ())


def wants(*sizes: int) -> list[NodeRequest]:
    found, at = [], 0
    for turn, size in enumerate(sizes):
        found.append(NodeRequest(turn + 1, N[at : at + size], POOL))
        at += size
    return found


def machine(node: hostlist.NodeName) -> Instance:
    return Instance(
        id=f"i-{node}",
        state=InstanceState.PENDING,
        role="compute",
        node=node,
        pool="gpu",
        partition="spot",
        attempt="a",
        type="g5.xlarge",
        zone="us-east-1a",
        lifecycle=Lifecycle.SPOT,
        address="10.0.0.1",
        price="1",
        launched_at=0.0,
    )


def settled(jobs: list[NodeRequest], got: int, *, old: bool = False) -> batching.InstanceAllocation:
    nodes = [node for want in jobs for node in want.nodes][:got]
    machines = {node: machine(node) for node in nodes}
    return batching.allocate(
        jobs, machines, set() if old else {item.id for item in machines.values()}
    )


def test_five_hundred_jobs_of_eight_nodes_are_seventeen_calls():
    found = batching.batches(wants(*[8] * 500), fleet=False)
    assert len(found) == 17, "31 whole jobs fit into a call of 250"
    assert all(len(item.nodes) <= batching.MAX_SHARED_BATCH for item in found)
    assert tuple(node for item in found for node in item.nodes) == N


def test_a_job_is_pooled_only_where_its_call_is_worth_it():
    assert [item.min_instances for item in batching.batches(wants(8, 3, 5), fleet=False)] == [3]


@pytest.mark.parametrize("fleet", [False, True])
@pytest.mark.parametrize("size", [600, 1000])
def test_a_job_that_fits_into_one_call_is_never_split(size: int, *, fleet: bool):
    """Plan a job of 600 or 1,000 nodes.

    In one call, EC2 itself makes it all or nothing. With two calls, 500 instances could be paid for
    nothing.
    """
    (found,) = batching.batches(wants(size), fleet=fleet)
    assert (len(found.nodes), found.min_instances) == (size, size)


def test_a_job_larger_than_a_call_is_all_or_nothing_in_each():
    found = batching.batches(wants(2, 1100, 3), fleet=False)
    parts = [(250, 250)] * 4
    assert [(len(item.nodes), item.min_instances) for item in found] == [
        (2, 2),
        *parts,
        (100, 100),
        (3, 3),
    ]


def test_a_part_of_a_large_job_leaves_most_of_ec2s_bucket():
    """Plan a job of 4,000 nodes.

    A call as large as the bucket would have to wait until the bucket is full.
    """
    found = batching.batches(wants(4000), fleet=False)
    assert max(len(item.nodes) for item in found) <= INSTANCES.burst / 4


@pytest.mark.parametrize(("burst", "sizes"), [(100, [100, 100, 50]), (99.5, [99, 99, 52])])
def test_no_call_is_larger_than_what_the_account_is_told_to_start_at_once(
    burst: float, sizes: list[int]
):
    """Plan launches with a configured burst of about 100 instances.

    EC2 would never grant a larger call, however long the call waits.
    """
    found = batching.batches(wants(250), fleet=False, burst=burst)
    assert [len(item.nodes) for item in found] == sizes
    assert all(item.min_instances == len(item.nodes) for item in found)
    together = batching.batches(wants(60, 60, 30), fleet=False, burst=burst)
    assert [len(item.nodes) for item in together] == [60, 90]


def test_a_fleet_is_as_large_as_the_job_whatever_the_burst_is():
    (found,) = batching.batches(wants(250), fleet=True, burst=100)
    assert len(found.nodes) == 250


def test_a_burst_of_less_than_one_instance_is_asked_for_one_by_one():
    found = batching.batches(wants(2), fleet=False, burst=0.5)
    assert [len(item.nodes) for item in found] == [1, 1]


def test_only_instances_of_node_requests_that_the_call_serves_whole_are_certain():
    jobs = wants(2, 3, 600)
    pooled = batching.Batch(tuple(jobs[:2]), N[:5], 2)
    machines = [machine(node) for node in N[:4]]
    assert [item.node for item in batching.final_instances(pooled, machines)] == list(N[:2])
    part = batching.Batch((jobs[2],), N[5:255], 250)
    machines = [machine(node) for node in N[5:255]]
    assert batching.final_instances(part, machines) == tuple(machines)


@pytest.mark.parametrize("fleet", [False, True])
def test_nodes_scattered_over_the_pool_still_fit_into_the_tags(*, fleet: bool):
    scattered = NodeRequest(1, N[::2][:900], POOL)
    found = batching.batches([scattered], fleet=fleet)
    rng = random.Random(1)  # noqa: S311  # ids, the same each time
    for item in found:
        most = FLEET_PARTS if fleet else MAX_PARTS
        assert len(node_tags(item.nodes)) <= most
        ids = [f"i-{rng.getrandbits(68):017x}" for _ in item.nodes]
        assert len(order_tags(ids)) <= 28, "with the hostlist and the others, EC2's 50"
    assert tuple(node for item in found for node in item.nodes) == scattered.nodes


def test_whole_jobs_are_filled_in_queue_order():
    jobs = wants(3, 3, 3)
    found = settled(jobs, 7)
    assert list(found.complete) == jobs[:2]
    assert [item.node for item in found.surplus] == [N[6]]


def test_surplus_instances_of_one_job_go_to_the_next_that_fits():
    jobs = wants(2, 4, 3, 1)
    found = settled(jobs, 5)
    assert list(found.complete) == [jobs[0], jobs[2]]
    assert set(found.reassigned.values()) == set(jobs[2].nodes)
    assert found.surplus == ()


def test_a_job_keeps_its_own_instances_and_takes_only_what_it_lacks():
    jobs = wants(3, 2)
    machines = {node: machine(node) for node in (*jobs[0].nodes[:2], *jobs[1].nodes[:1])}
    found = batching.allocate(jobs, machines, {item.id for item in machines.values()})
    assert list(found.complete) == [jobs[0]]
    assert found.reassigned == {f"i-{jobs[1].nodes[0]}": jobs[0].nodes[2]}


def test_an_instance_that_may_have_read_its_name_is_not_reassigned():
    jobs = wants(2, 4, 3)
    found = settled(jobs, 5, old=True)
    assert list(found.complete) == [jobs[0]]
    assert len(found.surplus) == 3


def test_no_instance_is_reassigned_to_a_node_with_an_unresolved_launch():
    jobs = wants(2, 2, 1)
    machines = {node: machine(node) for node in (jobs[0].nodes[0], jobs[1].nodes[0])}
    young = {item.id for item in machines.values()}
    assert set(batching.allocate(jobs, machines, young).complete) == {jobs[0]}
    found = batching.allocate(jobs, machines, young, {jobs[0]})
    assert found.reassigned == {f"i-{jobs[0].nodes[0]}": jobs[1].nodes[1]}


class Looked:
    """An instance that counts the reads of its id."""

    looks = 0

    def __init__(self, node: hostlist.NodeName) -> None:
        self._id = f"i-{node}"

    @property
    def id(self) -> str:
        type(self).looks += 1
        return self._id


@pytest.mark.parametrize("old", [False, True])
def test_each_instance_is_examined_a_few_times_for_any_number_of_jobs(
    monkeypatch: pytest.MonkeyPatch, *, old: bool
):
    monkeypatch.setattr(Looked, "looks", 0)
    jobs = wants(*[8] * 400)
    machines: dict[hostlist.NodeName, Any] = {n: Looked(n) for job in jobs for n in job.nodes[:4]}
    young = set() if old else {f"i-{node}" for node in machines}
    found = batching.allocate(jobs, machines, young)
    assert len(found.complete) == (0 if old else 200)
    assert Looked.looks <= 3 * len(machines)


def test_a_fleets_instances_are_told_apart_by_the_ends_of_their_ids():
    ids = [f"i-{n:013x}{n % 7:04x}" for n in range(500)]
    tags = {**node_tags(N[:500]), **order_tags(ids)}
    assert len(tags) <= 40
    assert all(len(value) <= 256 for value in tags.values())
    assert [node_of(tags, 0, item) for item in ids] == list(N[:500])
    assert node_of(tags, 0, "i-0000000000000ffff") is None


def test_an_instance_of_a_fleet_without_an_order_is_no_node():
    tags = {"toolkit:nodes": "gpu-[001-003]", "toolkit:order": "pending"}
    assert node_of(tags, 0, "i-1") is None
