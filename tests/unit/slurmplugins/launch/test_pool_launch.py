"""resume for many jobs: few calls, whole jobs, nothing left over."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.config import burst as burst_config
from slurmplugins.errors import SlurmUnreachable
from slurmplugins.launch.launcher import NOT_BOOTED_SECONDS
from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause, Lifecycle
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler.run import run_pass
from slurmplugins.system.workers import WorkerPool
from tests.fakes.engine import ON_DEMAND, SPOT_A, SPOT_B, Bench, burst

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurmplugins.model.instance import Assignment
    from slurmplugins.model.launch import JobRequest, LaunchRequest, LaunchResult

G = hostlist.expand("gpu-[0001-4000]")
BIG = "spot:g5.2xlarge:us-east-1a"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, nodes="gpu-[0001-0024]")


@pytest.fixture
def wide(tmp_path: Path) -> Bench:
    return Bench(tmp_path, nodes="gpu-[0001-4000]")


def start(bench: Bench, *sizes: int, at: int = 0) -> list[JobRequest]:
    asks = []
    for job, size in enumerate(sizes, start=100):
        asks.append(bench.slurm.start(job, G[at : at + size]))
        at += size
    return asks


def reconfigured(bench: Bench, **more: object) -> Bench:
    """Add a second spot type, and more keys, to the configuration."""
    document = burst("gpu-[0001-4000]", **more)
    gpu = document["pools"]["gpu"]  # type: ignore[index]
    first = gpu["offerings"][0]
    gpu["offerings"].insert(1, {**first, "type": "g5.2xlarge", "price": "0.5"})
    bench.config = burst_config.parse(document)
    bench.engine = replace(bench.engine, config=bench.config)
    return bench


def running(bench: Bench) -> set[int]:
    return {number for number, job in bench.slurm.queue.items() if job.state == "RUNNING"}


def test_five_hundred_jobs_take_tens_of_calls(wide: Bench):
    resume(wide.engine, start(wide, *[8] * 500))
    assert {item.node for item in wide.cloud.live()} == set(G)
    assert len(wide.cloud.calls) < 20
    assert len(wide.slurm.writes) < 20


def test_jobs_in_one_call_are_whole_or_have_nothing(bench: Bench):
    bench.cloud.capacity = {SPOT_A: 7, SPOT_B: 0, ON_DEMAND: 0}
    resume(bench.engine, start(bench, 3, 3, 3))
    assert running(bench) == {100, 101}
    assert {item.node for item in bench.cloud.live()} == set(G[:6])


def test_the_rest_goes_on_to_the_next_offering(bench: Bench):
    bench.cloud.capacity = {SPOT_A: 7, SPOT_B: 2}
    resume(bench.engine, start(bench, 3, 3, 3))
    assert running(bench) == {100, 101, 102}
    bought = {item.node for item in bench.cloud.live() if item.lifecycle is Lifecycle.ON_DEMAND}
    assert bought == set(G[6:9])


def test_a_surplus_instance_is_reassigned_to_the_next_job_of_the_shape(bench: Bench):
    bench.cloud.capacity = {SPOT_A: 5, SPOT_B: 0, ON_DEMAND: 0}
    resume(bench.engine, start(bench, 2, 4, 3))
    assert running(bench) == {100, 102}
    assert {item.node for item in bench.cloud.live()} == {*G[:2], *G[6:9]}
    assert "terminate" not in bench.cloud.calls
    for machine in bench.cloud.live():
        assert bench.slurm.state[machine.node].instance_id == machine.id  # type: ignore[index]


def test_a_surplus_instance_that_may_have_read_its_name_is_terminated_and_not_reassigned(
    bench: Bench,
):
    """Let each launch call take ten seconds.

    Meanwhile the instance may have booted and read its first node name.
    """
    bench.cloud.capacity = {SPOT_A: 5, SPOT_B: 0, ON_DEMAND: 0}
    launch = bench.cloud.launch

    def slowly(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        found = launch(request, intend)
        bench.clock.advance(10)
        return found

    bench.cloud.launch = slowly  # type: ignore[method-assign]
    resume(bench.engine, start(bench, 2, 4, 3))
    assert running(bench) == {100}
    assert {item.node for item in bench.cloud.live()} == set(G[:2])


def test_a_surplus_instances_age_does_not_include_its_calls_wait(bench: Bench):
    bench.cloud.capacity = {SPOT_A: 5, SPOT_B: 0, ON_DEMAND: 0}
    bench.cloud.next_errors = [error_codes.error("SlowDown", "wait")] * 5
    resume(bench.engine, start(bench, 2, 4, 3))
    assert running(bench) == {100, 102}


def test_a_surplus_instance_is_as_old_as_the_first_call_that_may_have_launched_it(bench: Bench):
    bench.cloud.capacity = {SPOT_A: 5, SPOT_B: 0, ON_DEMAND: 0}
    bench.cloud.lose_answers = 4
    resume(bench.engine, start(bench, 2, 4, 3))
    assert bench.clock.slept
    assert running(bench) == {100}


def test_no_reassignment_is_sent_once_its_instance_may_have_read_its_name(
    bench: Bench,
):
    bench.cloud.capacity = {SPOT_A: 10, SPOT_B: 0, ON_DEMAND: 0}
    give, ages = bench.cloud.retag_nodes, []

    def slowly(wanted: dict[str, hostlist.NodeName], may: Callable[[str], bool]) -> bool:
        done = give(wanted, may)
        ages.extend([bench.clock.monotonic() - since(key) for key in wanted if done])
        bench.clock.advance(1.2)
        return done

    def since(instance_id: str) -> float:
        return bench.cloud.machines[instance_id].instance.launched_at

    bench.cloud.retag_nodes = slowly  # type: ignore[method-assign]
    resume(bench.engine, start(bench, 12, *[1] * 8))
    assert len(ages) == 5
    assert max(ages) <= NOT_BOOTED_SECONDS
    assert running(bench) == {101, 102, 103, 104, 105}
    assert {item.node for item in bench.cloud.live()} == set(G[12:17])


def test_a_reassigned_instance_is_known_by_its_new_node_before_ec2_lists_it(bench: Bench):
    bench.cloud.lag = 60
    bench.cloud.capacity = {SPOT_A: 5, SPOT_B: 0, ON_DEMAND: 0}
    asks = start(bench, 2, 4, 3)
    resume(bench.engine, asks)
    assert running(bench) == {100, 102}
    launches = len(bench.cloud.requests)
    bench.cloud.capacity = {}
    resume(bench.engine, [asks[2]])
    assert len(bench.cloud.requests) == launches


@pytest.mark.parametrize("program", ["reconcile", "suspend"])
def test_a_reassigned_instance_is_not_terminated_with_its_old_node(bench: Bench, program: str):
    """Reassign instances while EC2's tags lag by 60 seconds.

    A pass may have listed such an instance before, under its old node.
    """
    bench.cloud.capacity = {SPOT_A: 5, SPOT_B: 0, ON_DEMAND: 0}
    bench.cloud.tag_lag = 60
    resume(bench.engine, start(bench, 2, 4, 3))
    assert {item.node for item in bench.cloud.instances()} == set(G[:5])
    bench.slurm.tick()
    if program == "reconcile":
        run_pass(bench.engine)
    else:
        suspend(bench.engine, bench.slurm.suspended, EndCause.SUSPEND)
    assert bench.slurm.suspended == list(G[2:6]), "the old names are of nodes that were let go"
    assert len(bench.cloud.live()) == 5
    assert running(bench) == {100, 102}


def test_an_instance_that_can_not_be_reassigned_is_terminated(bench: Bench):
    bench.cloud.capacity = {SPOT_A: 5, SPOT_B: 0, ON_DEMAND: 0}
    bench.cloud.next_give_errors = [error_codes.error("UnauthorizedOperation", "no")]
    resume(bench.engine, start(bench, 2, 4, 3))
    assert running(bench) == {100}
    assert len(bench.cloud.live()) == 2


def test_a_job_is_not_launched_again_while_its_reassigned_instance_may_still_run(
    bench: Bench,
):
    bench.cloud.lag = 60
    bench.cloud.capacity = {SPOT_A: 5}
    bench.cloud.lose_gifts = 1
    resume(bench.engine, start(bench, 2, 4, 3))
    assert running(bench) == {100}
    live = [item.node for item in bench.cloud.live()]
    assert len(live) == len(set(live))


def test_a_job_with_an_unresolved_launch_gets_no_surplus_instance(wide: Bench):
    wide.cloud.lag = 60
    launch = wide.cloud.launch

    def silent_for_the_first(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        wide.cloud.lose_answers = int(G[0] in request.nodes)
        wide.cloud.capacity = {SPOT_A: 450}
        return launch(request, intend)

    wide.cloud.launch = silent_for_the_first  # type: ignore[method-assign]
    resume(wide.engine, start(wide, 400, 499, 1))
    live = [item.node for item in wide.cloud.live()]
    assert len(live) == len(set(live))


def test_an_instance_that_terminated_before_its_launch_was_answered_serves_no_job(bench: Bench):
    bench.cloud.lose_answers = 1
    launch = bench.cloud.launch

    def taken_meanwhile(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        for machine in bench.cloud.live()[:1]:
            bench.cloud.interrupt(machine.id)
        bench.cloud.launch = launch if bench.cloud.machines else taken_meanwhile  # type: ignore[method-assign]
        return launch(request, intend)

    bench.cloud.launch = taken_meanwhile  # type: ignore[method-assign]
    resume(bench.engine, start(bench, 2))
    assert running(bench) == {100}
    live = {item.node: item.id for item in bench.cloud.live()}
    assert live == {node: bench.slurm.state[node].instance_id for node in G[:2]}


def test_a_job_over_several_calls_keeps_nothing_when_one_of_them_fails(wide: Bench):
    wide.cloud.capacity = {SPOT_A: 2500, SPOT_B: 0, ON_DEMAND: 0}
    resume(wide.engine, start(wide, 3000))
    assert wide.cloud.live() == []
    assert running(wide) == set()


def test_addresses_of_a_large_job_are_written_after_each_of_its_calls(wide: Bench):
    launch, told_before = wide.cloud.launch, []

    def told(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        told_before.append(len(wide.slurm.assigned))
        return launch(request, intend)

    wide.cloud.launch = told  # type: ignore[method-assign]
    resume(wide.engine, start(wide, 1100))
    assert told_before == [0, 250, 500, 750, 1000]
    assert sum(write.startswith("assign") for write in wide.slurm.writes) == 5, "each once"
    assert all(wide.slurm.state[node].instance_id for node in G[:1100])


def test_addresses_that_slurmctld_missed_are_written_when_the_job_is_complete(wide: Bench):
    assign, times = wide.slurm.assign, []

    def deaf(assignments: Sequence[Assignment]) -> None:
        times.append(len(assignments))
        if len(times) == 1:
            raise SlurmUnreachable("restarts")
        assign(assignments)

    wide.slurm.assign = deaf  # type: ignore[method-assign]
    resume(wide.engine, start(wide, 1100))
    assert times == [250, 250, 250, 250, 100, 250]
    assert len(wide.slurm.assigned) == 1100


def test_nodes_with_written_addresses_are_given_back_with_their_job(wide: Bench):
    wide.cloud.capacity = {SPOT_A: 1250, SPOT_B: 0, ON_DEMAND: 0}
    resume(wide.engine, start(wide, 1300))
    assert wide.slurm.assigned, "or nothing is shown"
    assert wide.cloud.live() == []
    wide.slurm.tick()
    wide.clock.advance(wide.slurm.suspend_timeout)
    wide.slurm.tick()
    for node in G[:1300]:
        item = wide.slurm.state[node]
        assert (item.instance_id, item.address) == ("", node)
        assert "POWERED_DOWN" in item.flags


def test_an_instance_that_slurm_has_as_one_node_is_never_another(wide: Bench):
    """Leave a job of 1,300 nodes with 1,250 instances.

    These surplus instances would do for the small job. But slurmctld has them as other nodes by
    now.
    """
    wide.cloud.capacity = {SPOT_A: 1250, SPOT_B: 0}
    resume(wide.engine, start(wide, 1300, 100))
    assert "give" not in wide.cloud.calls
    assert running(wide) == {100, 101}
    assert {item.lifecycle for item in wide.cloud.live()} == {Lifecycle.ON_DEMAND}


def test_a_node_is_not_launched_again_while_its_surplus_instance_can_not_be_terminated(
    bench: Bench,
):
    bench.cloud.lag = 60
    bench.cloud.capacity = {SPOT_A: 5}
    resume(bench.engine, start(bench, 3, 3))
    assert running(bench) == {100}
    live = [item.node for item in bench.cloud.live()]
    assert len(live) == len(set(live))


def test_an_offering_refused_once_is_asked_for_no_other_job_of_the_run(wide: Bench):
    wide.cloud.capacity = {SPOT_A: 0}
    resume(wide.engine, start(wide, *[8] * 200))
    tried = wide.cloud.calls.count("launch")
    assert tried == 1 + 7, "once at spot A, then seven calls at spot B"


def test_a_job_over_two_pools_and_its_neighbours_are_each_whole(bench: Bench):
    bench.cloud.capacity = {"on-demand:m7i.large:us-east-1a": 1}
    cpu = hostlist.expand("cpu-[1-2]")
    asks = [bench.slurm.start(7, (*G[:2], *cpu)), *start(bench, 2, at=2)]
    resume(bench.engine, asks)
    assert running(bench) == {100}
    assert {item.node for item in bench.cloud.live()} == set(G[2:4])


def test_capacity_that_is_back_after_the_first_call_serves_all_the_others(wide: Bench):
    """Mark all offerings unavailable before three jobs of 300 nodes.

    The first call succeeds, which removes the mark for all later calls.
    """
    for item in wide.config.pools["gpu"].offerings:
        wide.engine.unavailable_offerings.mark_unavailable(
            item, error_codes.error("InsufficientInstanceCapacity", "none")
        )
    resume(wide.engine, start(wide, *[300] * 3))
    assert running(wide) == {100, 101, 102}


# Bugs of the toolkit


def clumsy(bench: Bench, pool: str) -> None:
    """Raise KeyError in launches of one pool, after the instances start.

    It stands for a bug of the adapter.
    """
    launch = bench.cloud.launch

    def launched(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        found = launch(request, intend)
        if request.pool == pool:
            raise KeyError("no such thing")
        return found

    bench.cloud.launch = launched  # type: ignore[method-assign]


def test_a_bug_gives_back_the_jobs_it_leaves_undecided_and_no_other(bench: Bench):
    clumsy(bench, "cpu")
    cpu = hostlist.expand("cpu-[1-2]")
    asks = [*start(bench, 2), bench.slurm.start(7, cpu)]
    with pytest.raises(KeyError):
        resume(bench.engine, asks)
    assert running(bench) == {100}
    assert "KeyError" in bench.slurm.queue[7].comment
    for node in cpu:
        assert bench.slurm.flags(node) >= {"DOWN", "POWER_DOWN"}
        assert bench.slurm.state[node].reason == "toolkit: bug"


def test_instances_of_jobs_that_a_bug_left_undecided_are_terminated(bench: Bench):
    clumsy(bench, "gpu")
    with pytest.raises(KeyError):
        resume(bench.engine, start(bench, 2))
    assert len(bench.cloud.live()) == 2
    bench.slurm.tick()
    suspend(bench.engine, bench.slurm.suspended, EndCause.SUSPEND)
    assert bench.cloud.live() == []


# Fleets


def test_several_types_that_will_do_are_one_fleet(bench: Bench):
    reconfigured(bench)
    resume(bench.engine, start(bench, 3, 2))
    (request,) = bench.cloud.requests
    assert [item.type for item in request.offerings] == ["g5.xlarge", "g5.2xlarge"]
    assert running(bench) == {100, 101}


def test_a_fleet_mixes_types_and_each_instance_has_its_price(bench: Bench):
    reconfigured(bench)
    bench.cloud.capacity = {SPOT_A: 2}
    resume(bench.engine, start(bench, 3))
    assert sorted((item.type, item.price) for item in bench.cloud.live()) == [
        ("g5.2xlarge", "0.5"),
        ("g5.xlarge", "0.4024"),
        ("g5.xlarge", "0.4024"),
    ]


def test_errors_of_a_fleet_are_kept_apart_and_remembered_apart(bench: Bench):
    reconfigured(bench)
    bench.cloud.capacity = {SPOT_A: 0, SPOT_B: 0, ON_DEMAND: 0}
    bench.cloud.refusals = {BIG: "VcpuLimitExceeded"}
    resume(bench.engine, start(bench, 2))
    comment = bench.slurm.queue[100].comment
    assert f"{SPOT_A}: InsufficientInstanceCapacity" in comment
    assert f"{BIG}: VcpuLimitExceeded" in comment
    known = bench.engine.unavailable_offerings.entries()
    assert known[BIG].code == "VcpuLimitExceeded"
    assert known[SPOT_A].code == "InsufficientInstanceCapacity"


def test_a_type_refused_before_is_left_out_of_the_fleet(bench: Bench):
    reconfigured(bench)
    bench.cloud.capacity = {SPOT_A: 0}
    resume(bench.engine, start(bench, 2))
    resume(bench.engine, [bench.slurm.start(7, G[10:12])])
    assert [item.type for item in bench.cloud.requests[-1].offerings] == ["g5.2xlarge"]


# Policies


def partitions(**policy: object) -> dict[str, object]:
    return {"partitions": {"spot": policy}}


def test_spot_only_never_goes_on_demand(bench: Bench):
    reconfigured(bench, **partitions(policy="spot-only"))
    bench.cloud.capacity = {SPOT_A: 0, SPOT_B: 0, BIG: 0}
    resume(bench.engine, start(bench, 1))
    assert bench.cloud.live() == []


def test_on_demand_only_never_goes_spot(bench: Bench):
    reconfigured(bench, **partitions(policy="on-demand-only"))
    resume(bench.engine, start(bench, 1))
    assert [item.lifecycle for item in bench.cloud.live()] == [Lifecycle.ON_DEMAND]


def test_cheapest_first_asks_type_by_type_in_order_of_price(bench: Bench):
    reconfigured(bench, **partitions(policy="cheapest-first"))
    bench.cloud.capacity = {SPOT_A: 0}
    resume(bench.engine, start(bench, 1))
    assert bench.cloud.requests[-1].offerings[0].key == SPOT_B
    assert bench.cloud.requests[-1].others == ()


def test_on_demand_waits_until_the_job_has_waited_however_often_it_was_requeued(bench: Bench):
    reconfigured(bench, **partitions(policy="on-demand-after", after=600))
    bench.cloud.capacity = {SPOT_A: 0, SPOT_B: 0, BIG: 0}
    resume(bench.engine, start(bench, 1))
    assert bench.cloud.live() == []
    bench.clock.advance(601)
    bench.slurm.define(G[:1])
    resume(bench.engine, [bench.slurm.start(100, G[:1])])
    assert [item.lifecycle for item in bench.cloud.live()] == [Lifecycle.ON_DEMAND]


def test_time_in_the_queue_before_the_first_resume_counts(bench: Bench):
    reconfigured(bench, **partitions(policy="on-demand-after", after=600))
    bench.cloud.capacity = {SPOT_A: 0, SPOT_B: 0, BIG: 0}
    asks = start(bench, 1)
    bench.slurm.queue[100].submitted_at = bench.clock.now() - 700
    resume(bench.engine, asks)
    assert len(bench.cloud.live()) == 1


def test_a_jobs_own_partition_decides(bench: Bench):
    reconfigured(bench, partitions={"urgent": {"policy": "on-demand-only"}})
    first, second = start(bench, 1, 1)
    resume(bench.engine, [replace(first, partition="urgent"), second])
    bought = {item.node: item.lifecycle for item in bench.cloud.live()}
    assert bought == {G[0]: Lifecycle.ON_DEMAND, G[1]: Lifecycle.SPOT}


def test_spot_has_no_more_than_its_share_of_what_the_pool_costs(bench: Bench):
    reconfigured(bench)
    pool = replace(bench.config.pools["gpu"], max_spot_share=0.5)
    bench.engine = replace(bench.engine, config=replace(bench.config, pools={"gpu": pool}))
    resume(bench.engine, start(bench, *[1] * 20))
    live = bench.cloud.live()
    spot = sum(float(item.price) for item in live if item.lifecycle is Lifecycle.SPOT)
    total = sum(float(item.price) for item in live)
    assert len(live) == 20
    assert 0.3 < spot / total <= 0.5


# Concurrent calls


def test_calls_that_do_not_depend_on_each_other_are_under_way_together(wide: Bench):
    wide.engine = replace(wide.engine, workers=WorkerPool(4))
    together = threading.Barrier(4, timeout=10)
    launch = wide.cloud.launch
    lock = threading.Lock()

    def meeting(request, intend):
        together.wait()
        with lock:
            return launch(request, intend)

    wide.cloud.launch = meeting  # type: ignore[method-assign]
    resume(wide.engine, start(wide, *[400] * 4))
    assert len(wide.cloud.live()) == 1600


# Held jobs


@pytest.mark.parametrize(
    "code", ["VcpuLimitExceeded", "UnauthorizedOperation", "InvalidParameterValue"]
)
def test_a_job_that_only_a_person_can_help_is_held_with_ec2s_message(bench: Bench, code: str):
    bench.cloud.refusals = dict.fromkeys((SPOT_A, SPOT_B, ON_DEMAND), code)
    asks = start(bench, 2)
    bench.slurm.queue[100].comment = "theirs"
    resume(bench.engine, asks)
    job = bench.slurm.queue[100]
    assert job.held
    assert job.comment.startswith("theirs | toolkit: ")
    assert f"({code})" in job.comment
    assert f"no {SPOT_A} left" in job.comment


def test_only_a_job_that_ec2_itself_refused_is_held(wide: Bench):
    keys = (SPOT_A, SPOT_B, ON_DEMAND)
    wide.cloud.refusals = dict.fromkeys(keys, "VcpuLimitExceeded")
    resume(wide.engine, start(wide, 600, 64))
    large, small = wide.slurm.queue[100], wide.slurm.queue[101]
    assert (large.held, small.held) == (True, False)
    assert "refused it to another job a moment ago" in small.comment


def test_a_job_that_may_find_capacity_later_is_not_held(bench: Bench):
    bench.cloud.refusals = {ON_DEMAND: "VcpuLimitExceeded"}
    bench.cloud.capacity = {SPOT_A: 0, SPOT_B: 0}
    resume(bench.engine, start(bench, 2))
    assert not bench.slurm.queue[100].held
    assert bench.slurm.state[G[0]].reason == "toolkit: quota (VcpuLimitExceeded)"


def test_a_throttled_call_is_repeated_while_there_is_time(bench: Bench):
    bench.cloud.next_errors = [error_codes.error("RequestLimitExceeded", "slow")] * 7
    resume(bench.engine, start(bench, 2))
    assert running(bench) == {100}
    assert len(bench.cloud.requests) == 1


def test_no_further_offering_is_tried_once_half_of_resume_timeout_is_spent(bench: Bench):
    launch = bench.cloud.launch

    def slowly(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        bench.clock.advance(50)
        return launch(request, intend)

    bench.cloud.launch = slowly  # type: ignore[method-assign]
    bench.cloud.capacity = {SPOT_A: 0, SPOT_B: 0}
    resume(bench.engine, start(bench, 2))
    assert bench.cloud.calls.count("launch") == 2, "there was capacity on demand, and no time"
    assert bench.slurm.state[G[0]].reason.startswith("toolkit: no-capacity")


def test_an_ec2_that_throttles_without_end_costs_no_more_than_the_time_there_is(bench: Bench):
    began = bench.clock.monotonic()
    bench.cloud.next_errors = [error_codes.error("RequestLimitExceeded", "slow")] * 1000
    resume(bench.engine, start(bench, 2))
    assert bench.clock.monotonic() - began < bench.config.resume_timeout
    assert bench.slurm.state[G[0]].reason == "toolkit: throttled (RequestLimitExceeded)"
    assert not bench.slurm.queue[100].held
