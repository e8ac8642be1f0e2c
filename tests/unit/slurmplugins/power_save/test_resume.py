"""resume and suspend with a stateful fake cloud and slurmctld."""

from __future__ import annotations

import dataclasses
import os
import threading
from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.errors import CloudError, SlurmUnreachable
from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause
from slurmplugins.model.launch import JobRequest, LaunchRequest, LaunchResult
from slurmplugins.model.node import INTERRUPTION_REASON
from slurmplugins.power_save.resume import resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.system.workers import WorkerPool
from tests.fakes.boundaries import watch
from tests.fakes.engine import ON_DEMAND, SPOT_A, SPOT_B, Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

G = hostlist.expand("gpu-[001-008]")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_job_gets_one_instance_a_node_in_one_call(bench: Bench):
    resume(bench.engine, [bench.slurm.start(7, G[:3])])
    assert [item.node for item in bench.cloud.live()] == list(G[:3])
    assert len(bench.cloud.requests) == 1
    assert bench.cloud.requests[0].offering.key == SPOT_A


def test_addresses_and_instance_ids_are_written_back(bench: Bench):
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert len(bench.cloud.live()) == 2
    for machine in bench.cloud.live():
        assert machine.node is not None
        assert bench.slurm.state[machine.node].instance_id == machine.id
        assert bench.slurm.state[machine.node].address == machine.address


def test_the_next_offering_is_tried_in_the_same_run(bench: Bench):
    bench.cloud.capacity = {SPOT_A: 1, SPOT_B: 0}
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert {item.lifecycle.value for item in bench.cloud.live()} == {"on-demand"}
    assert len(bench.cloud.live()) == 2


def test_a_failed_offering_is_skipped_by_later_runs_until_its_time_is_up(bench: Bench):
    bench.cloud.capacity = {SPOT_A: 0}
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    bench.cloud.calls.clear()
    resume(bench.engine, [bench.slurm.start(8, G[1:2])])
    assert bench.cloud.calls.count("launch") == 1
    bench.clock.advance(121)
    bench.cloud.capacity = {}
    resume(bench.engine, [bench.slurm.start(9, G[2:3])])
    assert bench.cloud.requests[-1].offering.key == SPOT_A


def test_out_of_offerings_gives_nodes_back_with_a_coded_reason_at_once(bench: Bench):
    bench.cloud.capacity = {SPOT_A: 0, SPOT_B: 0, ON_DEMAND: 0}
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert bench.cloud.live() == []
    assert bench.slurm.queue[7].state == "PENDING"
    for node in G[:2]:
        assert bench.slurm.flags(node) >= {"DOWN", "POWER_DOWN"}
        reason = bench.slurm.state[node].reason
        assert reason == "toolkit: no-capacity (InsufficientInstanceCapacity)"
    assert ON_DEMAND in bench.slurm.queue[7].comment


def test_nodes_are_given_back_although_slurm_does_not_know_one_of_them(bench: Bench):
    """Suspend two nodes, of which slurm.conf lacks one.

    burst.json still has that node. slurmctld then refuses to show either node.
    """
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    (machine,) = bench.cloud.live()
    bench.slurm.finish(7)
    bench.slurm.down(G[:1], "cancelled")
    bench.slurm.power_down(G[:1])
    bench.slurm.tick()
    del bench.slurm.state[G[7]]
    bench.cloud.unreadable = True
    with pytest.raises(CloudError):
        suspend(bench.engine, [G[0], G[7]], EndCause.SUSPEND)
    assert bench.engine.journal.view().powered_down_ids == {machine.id}


def test_a_node_powered_down_meanwhile_is_not_given_back_a_second_time(bench: Bench):
    """Power one node of a job down before its launch fails.

    slurmctld would keep a POWER_DOWN of a powered-down node, and apply it during the next job.
    """
    bench.cloud.capacity = {SPOT_A: 0, SPOT_B: 0, ON_DEMAND: 0}
    ask = bench.slurm.start(7, G[:2])
    bench.slurm.state[G[0]].flags = {"IDLE", "CLOUD", "POWERED_DOWN"}
    resume(bench.engine, [ask])
    assert bench.slurm.flags(G[0]) == {"IDLE", "CLOUD", "POWERED_DOWN"}
    assert bench.slurm.flags(G[1]) >= {"DOWN", "POWER_DOWN"}


def test_one_job_without_capacity_does_not_fail_another(bench: Bench):
    bench.cloud.capacity = {SPOT_A: 2, SPOT_B: 0, ON_DEMAND: 0}
    asks = [bench.slurm.start(7, G[:2]), bench.slurm.start(8, G[2:5])]
    resume(bench.engine, asks)
    assert {item.node for item in bench.cloud.live()} == set(G[:2])
    assert bench.slurm.queue[8].state == "PENDING"
    assert bench.slurm.queue[7].state == "RUNNING"


def test_a_job_over_two_pools_keeps_nothing_when_one_pool_fails(bench: Bench):
    bench.cloud.capacity = {"on-demand:m7i.large:us-east-1a": 0}
    nodes = (*G[:2], *hostlist.expand("cpu-1"))
    resume(bench.engine, [bench.slurm.start(7, nodes)])
    assert bench.cloud.live() == []
    assert bench.slurm.queue[7].state == "PENDING"


def test_a_jobs_earlier_instances_are_terminated_when_the_rest_can_not_be_launched(bench: Bench):
    """Give a job two earlier instances and no capacity for the rest.

    An earlier, unresolved launch for one of two pools may turn out to have worked.
    """
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert len(bench.cloud.live()) == 2
    bench.cloud.capacity = {"on-demand:m7i.large:us-east-1a": 0}
    (rest,) = hostlist.expand("cpu-1")
    bench.slurm.start(7, [rest])
    resume(bench.engine, [JobRequest(7, (*G[:2], rest))])
    assert bench.cloud.live() == []
    assert all("POWER_DOWN" in bench.slurm.flags(node) for node in (*G[:2], rest))


def test_a_job_larger_than_one_call_keeps_nothing_when_a_later_call_fails(tmp_path: Path):
    bench = Bench(tmp_path, nodes="gpu-[0001-1200]")
    nodes = hostlist.expand("gpu-[0001-0600]")
    bench.cloud.capacity = {SPOT_A: 550, SPOT_B: 550, ON_DEMAND: 550}
    resume(bench.engine, [bench.slurm.start(7, nodes)])
    assert bench.cloud.live() == []


def test_repeating_a_resume_starts_nothing_new(bench: Bench):
    ask = bench.slurm.start(7, G[:3])
    resume(bench.engine, [ask])
    resume(bench.engine, [ask])
    assert len(bench.cloud.live()) == 3
    assert len(bench.cloud.requests) == 1


def test_an_instance_the_cloud_does_not_list_yet_is_not_launched_twice(bench: Bench):
    bench.cloud.lag = 60
    ask = bench.slurm.start(7, G[:3])
    resume(bench.engine, [ask])
    resume(bench.engine, [ask])
    assert len(bench.cloud.requests) == 1


def test_nodes_a_live_run_works_on_are_left_to_it(bench: Bench):
    ask = bench.slurm.start(7, G[:2])
    with bench.engine.journal.resume_process() as other:
        bench.engine.journal.claim(other, lambda _: G[:2])
        resume(bench.engine, [ask])
    assert bench.cloud.requests == []
    assert bench.slurm.queue[7].state == "RUNNING"


def test_a_resume_that_died_before_its_answer_makes_the_next_one_wait(bench: Bench):
    ask = bench.slurm.start(7, G[:1])
    bench.cloud.lag = 30
    bench.cloud.lose_answers = 99
    resume(bench.engine, [ask])
    assert len(bench.cloud.live()) == 1, "the call had worked"
    assert bench.slurm.state[G[0]].reason.startswith("toolkit: cloud-unreachable")
    bench.cloud.lose_answers = 0
    resume(bench.engine, [JobRequest(8, G[:1])])
    assert len(bench.cloud.requests) == 1


def test_an_instance_marked_for_termination_does_not_resolve_a_launch(bench: Bench):
    """Lose the answer of a launch that replaces an old instance.

    The list may still show the old instance as live, and nothing of the unanswered launch.
    """
    ask = bench.slurm.start(7, G[:1])
    resume(bench.engine, [ask])
    bench.clock.advance(bench.config.resume_timeout)
    bench.cloud.lag, bench.cloud.stale, bench.cloud.lose_answers = 60, 30, 99
    resume(bench.engine, [ask])
    bench.cloud.lose_answers = 0
    started = len(bench.cloud.requests)
    resume(bench.engine, [ask])
    assert len(bench.cloud.requests) == started == 2


def at(place: str, act: Callable[[], None]) -> Callable[[str], None]:
    """Make a step that acts the first time at `place`."""
    todo = [act]

    def step(here: str) -> None:
        if here == place and todo:
            todo.pop()()

    return step


@pytest.mark.parametrize("place", ["journal.claim: done", "cloud.instances: about to"])
def test_nothing_is_launched_for_a_job_with_a_node_that_slurm_has_powered_down_since(
    bench: Bench, place: str
):
    asks = [bench.slurm.start(7, G[:3]), bench.slurm.start(8, G[3:5])]

    def let_go() -> None:
        bench.slurm.down(G[1:2], "bad NIC")
        bench.slurm.power_down(G[1:2])
        bench.slurm.tick()

    resume(watch(bench.engine, at(place, let_go)), asks)
    assert {item.node for item in bench.cloud.live()} == set(G[3:5])
    assert [bench.slurm.state[node].reason for node in G[:3]] == [
        "toolkit: not-awaited", "bad NIC", "toolkit: not-awaited",
    ]  # fmt: skip
    assert "slurmctld no longer waits for gpu-002" in bench.slurm.queue[7].comment


@pytest.mark.parametrize("ticks", [True, False])
@pytest.mark.parametrize("place", ["cloud.instances: about to", "cloud.launch: about to"])
def test_nothing_is_launched_once_resume_timeout_has_passed(bench: Bench, place: str, ticks: bool):
    """Move the clock past ResumeTimeout just before a call to EC2.

    The head node stood still, or the call's turn at EC2 came late.
    """

    def stand_still() -> None:
        bench.clock.advance(bench.config.resume_timeout + 1)
        if ticks:
            bench.slurm.tick()

    ask = bench.slurm.start(7, G[:3])
    resume(watch(bench.engine, at(place, stand_still)), [ask])
    assert bench.cloud.machines == {}
    assert bench.engine.journal.view().unresolved_nodes == set()
    if not ticks:
        assert bench.slurm.state[G[0]].reason == "toolkit: too-late"


def test_slurm_is_read_once_for_all_nodes_of_a_run(tmp_path: Path):
    bench = Bench(tmp_path, nodes="gpu-[0001-1200]")
    bench.cloud.capacity = {SPOT_A: 0}
    nodes = hostlist.expand("gpu-[0001-1200]")
    asks = [bench.slurm.start(job, nodes[job * 400 : (job + 1) * 400]) for job in range(3)]
    passed: list[str] = []
    resume(watch(bench.engine, passed.append), asks)
    assert len(bench.cloud.live()) == 1200
    reads = [place for place in passed if place in {"slurm.nodes: done", "slurm.jobs: done"}]
    assert reads == ["slurm.nodes: done"]


def test_a_slurmctld_that_restarts_during_a_resume_stops_no_launch(bench: Bench):
    ask = bench.slurm.start(7, G[:2])
    bench.slurm.unreachable = True
    resume(bench.engine, [ask])
    assert len(bench.cloud.live()) == 2


@pytest.mark.parametrize("unreachable", [True, False])
def test_an_instance_that_looks_old_is_kept_while_its_node_is_up_on_it(
    bench: Bench, unreachable: bool
):
    ask = bench.slurm.start(7, G[:2])
    resume(bench.engine, [bench.slurm.start(8, G[2:3])])
    (other,) = bench.cloud.live()
    bench.boot()
    bench.clock.advance(3600)
    bench.slurm.unreachable = unreachable
    resume(bench.engine, [JobRequest(7, (*ask.nodes, G[2]))])
    left = {item.node: item.id for item in bench.cloud.live()}
    assert left[G[2]] == other.id
    assert left.keys() == ({G[2]} if unreachable else set(G[:3]))


def test_nodes_that_other_runs_give_back_one_after_the_other_stop_no_launch(bench: Bench):
    """Let another process give back a node during each list.

    The number of such nodes does not matter, because each list is fresh.
    """
    asks = [bench.slurm.start(job, G[job - 1 : job]) for job in range(1, 8)]
    theirs = list(G[1:7])

    with bench.engine.journal.resume_process() as other:
        bench.engine.journal.claim(other, lambda _: theirs)

        def give_back(place: str) -> None:
            if place == "cloud.instances: about to" and theirs:
                node = theirs.pop()
                bench.slurm.down([node], "toolkit: no-capacity")
                bench.slurm.power_down([node])
                bench.engine.journal.release(other, [node])

        resume(watch(bench.engine, give_back), asks)
    assert [item.node for item in bench.cloud.live()] == [G[0]]
    assert bench.slurm.queue[1].state == "RUNNING"


def test_a_clock_set_forward_does_not_make_a_recent_launch_look_old(bench: Bench):
    bench.cloud.lag = 60
    ask = bench.slurm.start(7, G[:1])
    resume(bench.engine, [ask])
    bench.clock.jump(3600)
    resume(bench.engine, [ask])
    assert len(bench.cloud.requests) == 1


def test_a_lost_answer_is_asked_for_again_with_the_same_token(bench: Bench):
    bench.cloud.lose_answers = 2
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert len(bench.cloud.live()) == 2
    assert bench.cloud.calls.count("launch") == 3


def test_a_throttled_call_is_repeated_after_a_pause(bench: Bench):
    bench.cloud.next_errors = [error_codes.error("RequestLimitExceeded", "slow down")] * 2
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert len(bench.cloud.live()) == 2
    assert len(bench.clock.slept) == 2
    first, second = bench.clock.slept
    assert 0.5 <= first < 1.5
    assert 1 <= second < 3


def test_pauses_differ_so_that_runs_do_not_come_back_together(bench: Bench):
    for job in range(5):
        bench.cloud.next_errors = [error_codes.error("RequestLimitExceeded", "slow down")]
        resume(bench.engine, [bench.slurm.start(job + 1, G[job : job + 1])])
    assert len(set(bench.clock.slept)) == 5


def test_runs_whose_lists_were_throttled_do_not_come_back_together(bench: Bench):
    for job in range(5):
        bench.cloud.next_list_errors = [error_codes.error("RequestLimitExceeded", "slow down")]
        resume(bench.engine, [bench.slurm.start(job + 1, G[job : job + 1])])
    assert len(bench.cloud.live()) == 5
    assert len(set(bench.clock.slept)) == 5


def test_a_refused_credential_stops_at_the_first_offering(bench: Bench):
    bench.cloud.next_errors = [error_codes.error("UnauthorizedOperation", "no")]
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert bench.cloud.calls.count("launch") == 1
    assert bench.slurm.state[G[0]].reason == "toolkit: denied (UnauthorizedOperation)"


def test_different_errors_are_told_apart_and_the_gravest_is_named(bench: Bench):
    bench.cloud.refusals = {SPOT_A: "InsufficientInstanceCapacity", SPOT_B: "VcpuLimitExceeded"}
    bench.cloud.capacity = {ON_DEMAND: 0}
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert bench.slurm.state[G[0]].reason == "toolkit: quota (VcpuLimitExceeded)"
    assert "InsufficientInstanceCapacity" in bench.slurm.queue[7].comment


def test_a_cloud_that_can_not_be_read_launches_nothing_and_returns_the_nodes(bench: Bench):
    bench.cloud.unreadable = True
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert bench.cloud.requests == []
    assert bench.slurm.state[G[0]].reason == "toolkit: cloud-unreachable (Unreachable)"
    assert bench.slurm.queue[7].state == "PENDING"


def test_a_journal_that_can_not_be_written_launches_nothing(tmp_path: Path):
    bench = Bench(tmp_path)
    (tmp_path / "journal.jsonl").mkdir()
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert bench.cloud.requests == []
    assert bench.slurm.state[G[0]].reason == "toolkit: state"


def test_a_node_of_nobody_is_given_back_with_a_reason(bench: Bench):
    bench.slurm.define(hostlist.expand("other-1"))
    resume(bench.engine, [bench.slurm.start(7, hostlist.expand("other-1"))])
    assert bench.slurm.state["other-1"].reason == "toolkit: unknown-node"
    assert bench.slurm.queue[7].held


def test_an_instance_left_from_long_ago_is_replaced(bench: Bench):
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    old = bench.cloud.live()[0].id
    bench.clock.advance(3600)
    resume(bench.engine, [JobRequest(8, G[:1])])
    assert [item.id for item in bench.cloud.live()] != [old]
    assert len(bench.cloud.live()) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_instances_that_are_replaced_delay_no_job_but_those_that_replace_them(
    bench: Bench, workers: int
):
    first = bench.slurm.start(7, G[:1])
    resume(bench.engine, [first])
    bench.clock.advance(bench.config.resume_timeout)
    bench.cloud.calls.clear()
    launched = threading.Event()
    launch, terminate = bench.cloud.launch, bench.cloud.terminate

    def seen(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        answer = launch(request, intend)
        launched.set()
        return answer

    def waiting(ids: Sequence[str]) -> frozenset[str]:
        assert launched.wait(5)
        return terminate(ids)

    bench.cloud.launch, bench.cloud.terminate = seen, waiting  # type: ignore[method-assign]
    engine = dataclasses.replace(bench.engine, workers=WorkerPool(workers))
    resume(engine, [first, bench.slurm.start(8, G[1:3])])
    assert [len(request.nodes) for request in bench.cloud.requests] == [1, 2, 1]
    assert bench.cloud.calls.index("terminate") < len(bench.cloud.calls) - 1
    assert sorted(item.node or "" for item in bench.cloud.live()) == list(G[:3])


def test_one_node_slurm_refuses_does_not_spoil_the_others(bench: Bench):
    bench.cloud.capacity = {SPOT_A: 0, SPOT_B: 0, ON_DEMAND: 0}
    ask = bench.slurm.start(7, G[:3])
    bench.slurm.refuse = {G[1]}
    resume(bench.engine, [ask])
    assert "DOWN" in bench.slurm.flags(G[0])
    assert "DOWN" in bench.slurm.flags(G[2])


@pytest.mark.parametrize("pool", ["cpu", ""])
def test_an_instance_whose_tags_say_another_pool_is_replaced_and_not_adopted(
    bench: Bench, pool: str
):
    """Change the pool in the tags of a node's instance.

    The name was another pool's before cluster.yaml changed, so the instance may have any shape.
    """
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    (other,) = bench.cloud.live()
    machine = bench.cloud.machines[other.id]
    machine.instance = dataclasses.replace(machine.instance, pool=pool)
    resume(bench.engine, [JobRequest(8, G[:1])])
    (found,) = bench.cloud.live()
    assert (found.pool, found.id == other.id) == ("gpu", False)


def test_an_instance_whose_end_is_decided_is_not_adopted_however_alive_it_looks(bench: Bench):
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    (doomed,) = bench.cloud.live()
    bench.engine.journal.mark_terminating([doomed.id], EndCause.SUSPEND)
    resume(bench.engine, [JobRequest(8, G[:1])])
    assert len(bench.cloud.requests) == 2
    assert bench.slurm.state[G[0]].instance_id != doomed.id


def power_down_after_a_job(bench: Bench) -> None:
    """Run a job on two nodes, then let slurmctld suspend them."""
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    bench.boot()
    bench.slurm.finish(7)
    bench.slurm.power_down(list(G[:2]))
    bench.slurm.tick()


def test_suspend_terminates_the_instances_of_nodes_powered_down(bench: Bench):
    power_down_after_a_job(bench)
    suspend(bench.engine, bench.slurm.suspended, EndCause.SUSPEND)
    assert bench.cloud.live() == []


def test_an_instance_that_ends_after_its_notice_is_recorded_as_announced(bench: Bench):
    """End two instances, one of them after EC2's notice."""
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    bench.boot()
    ids = {item.node: item.id for item in bench.cloud.live()}
    bench.slurm.finish(7)
    bench.slurm.power_down(list(G[:2]))
    bench.slurm.tick()
    bench.slurm.state[G[0]].reason = INTERRUPTION_REASON
    suspend(bench.engine, G[:2], EndCause.SUSPEND)
    causes = bench.engine.journal.view().termination_causes
    assert (causes[ids[G[0]]], causes[ids[G[1]]]) == (EndCause.NOTICE, EndCause.SUSPEND)


def test_suspend_asks_again_for_a_list_that_was_throttled(bench: Bench):
    power_down_after_a_job(bench)
    bench.cloud.next_list_errors = [error_codes.error("RequestLimitExceeded", "slow down")] * 2
    suspend(bench.engine, bench.slurm.suspended, EndCause.SUSPEND)
    assert bench.cloud.live() == []


def test_an_instance_that_suspend_could_not_terminate_is_not_adopted_for_its_node(bench: Bench):
    """Fail the termination, then start a job on the same nodes.

    slurmctld lets only a node register that booted after the power-up.
    """
    power_down_after_a_job(bench)
    left = {item.id for item in bench.cloud.live()}
    bench.cloud.unreadable = True
    with pytest.raises(CloudError):
        suspend(bench.engine, bench.slurm.suspended, EndCause.SUSPEND)
    bench.clock.advance(61)
    bench.slurm.tick()
    bench.cloud.unreadable = False
    resume(bench.engine, [bench.slurm.start(8, G[:2])])
    bench.boot()
    assert bench.slurm.queue[8].state == "RUNNING"
    assert not bench.slurm.flags(G[0]) & {"POWERING_UP"}
    assert left.isdisjoint(item.id for item in bench.cloud.live())


def test_suspend_keeps_the_instance_of_a_node_that_is_up_again(bench: Bench):
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    bench.boot()
    suspend(bench.engine, G[:2], EndCause.SUSPEND)
    assert len(bench.cloud.live()) == 2


def test_suspend_terminates_nothing_when_slurm_can_not_be_read(bench: Bench):
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    bench.slurm.unreachable = True
    with pytest.raises(SlurmUnreachable):
        suspend(bench.engine, G[:2], EndCause.SUSPEND)
    assert len(bench.cloud.live()) == 2


def test_suspend_touches_no_instance_without_our_tag(bench: Bench):
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    machine = bench.cloud.live()[0]
    bench.cloud.machines[machine.id].cluster = "another"
    bench.slurm.define(G[:1])
    suspend(bench.engine, G[:1], EndCause.SUSPEND)
    assert len(bench.cloud.live()) == 1


def test_the_intent_is_on_the_disk_before_the_cloud_is_asked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    journal = bench.engine.state / "journal.jsonl"
    synced: dict[int, int] = {}
    fsync, launch = os.fsync, bench.cloud.launch

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        found = os.fstat(descriptor)
        synced[found.st_ino] = found.st_size

    def launched(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        def intended() -> None:
            intend()
            assert request.attempt in journal.read_text()
            assert synced[journal.stat().st_ino] == journal.stat().st_size

        return launch(request, intended)

    monkeypatch.setattr(os, "fsync", noted)
    bench.cloud.launch = launched  # type: ignore[method-assign]
    bench.cloud.capacity = {SPOT_A: 0}
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert len(bench.cloud.live()) == 2


class Killed(BaseException):
    """A stand-in for kill -9."""


@pytest.mark.parametrize("after_the_call", [True, False])
def test_a_resume_killed_around_its_launch_never_leads_to_a_second_instance(
    bench: Bench, after_the_call: bool
):
    ask = bench.slurm.start(7, G[:2])
    bench.cloud.lag = 60
    launch = bench.cloud.launch

    def mortal(request, intend):
        if after_the_call:
            launch(request, intend)
        else:
            intend()
        raise Killed

    bench.cloud.launch = mortal  # type: ignore[method-assign]
    with pytest.raises(Killed):
        resume(bench.engine, [ask])
    bench.cloud.launch = launch  # type: ignore[method-assign]
    resume(bench.engine, [ask])
    assert {item.node for item in bench.cloud.live()} == set(G[:2])
    assert len(bench.cloud.live()) == 2, "the same token asked what had become of it"
    assert bench.slurm.queue[7].state == "RUNNING"
    bench.clock.advance(130)
    resume(bench.engine, [JobRequest(8, G[2:3])])
    assert len({item.node for item in bench.cloud.live()}) == len(bench.cloud.live())
