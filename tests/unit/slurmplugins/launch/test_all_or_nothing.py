"""All or nothing, for het jobs and for jobs on shared nodes.

A job gets instances for all of its nodes, or none is kept.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.errors import SlurmUnreachable, SomeNotTerminated
from slurmplugins.launch import request_tracker
from slurmplugins.model import hostlist
from slurmplugins.model.instance import EndCause
from slurmplugins.model.launch import JobRequest
from slurmplugins.power_save.resume import resume
from slurmplugins.slurm import resume_file
from slurmplugins.system.log_events import LogEvent
from tests.fakes.boundaries import watch
from tests.fakes.engine import ON_DEMAND, SPOT_A, SPOT_B, Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurmplugins.model.launch import LaunchRequest, LaunchResult

G = hostlist.expand("gpu-[001-008]")
C = hostlist.expand("cpu-[1-4]")
CPU = "on-demand:m7i.large:us-east-1a"
QUOTA = "VcpuLimitExceeded"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def asks(bench: Bench, *started: JobRequest) -> Sequence[JobRequest]:
    """Write the job requests in slurmctld's format and read them back."""
    jobs = [{"job_id": ask.job, "nodes_resume": hostlist.compress(ask.nodes)} for ask in started]
    return resume_file.job_requests(json.dumps({"jobs": jobs}).encode(), "")


def het(bench: Bench, gpu: Sequence[str] = G[:2]) -> list[JobRequest]:
    nodes = tuple(hostlist.parse(node) for node in gpu)
    return [bench.slurm.start(7, nodes, whole=7), bench.slurm.start(8, C[:1], whole=7)]


def on(bench: Bench) -> set[str | None]:
    return {item.node for item in bench.cloud.live()}


def states(bench: Bench) -> dict[int, str]:
    return {number: job.state for number, job in bench.slurm.queue.items()}


def test_a_component_is_not_launched_while_anothers_launch_is_unresolved(bench: Bench):
    bench.cloud.lag = 60
    bench.cloud.lose_answers = 99
    resume(bench.engine, [bench.slurm.start(6, C[:1])])
    bench.cloud.lose_answers = 0
    bench.slurm.define(C[:1])
    bench.cloud.calls.clear()
    bench.cloud.next_errors = [error_codes.error("Unreachable", "no answer")] * 99
    resume(bench.engine, asks(bench, *het(bench)))
    assert not any(item.node in G for item in bench.cloud.live())
    assert states(bench)[7] == states(bench)[8] == "PENDING"
    assert bench.slurm.queue[7].comment == bench.slurm.queue[8].comment


@pytest.mark.parametrize(("slug", "others"), [("launch-loop", 4), ("rate-too-low", 0)])
def test_a_job_that_shares_a_node_with_one_that_is_held_is_not_held(
    bench: Bench, slug: str, others: int
):
    """Hold job 7, which shares a node with job 9.

    Job 9 gets a message of its own, and goes back to the queue.
    """
    tries = {"asked": 2, "started": 6, "since": bench.clock.now(), "at": bench.clock.now()}
    record = {"jobs": {"7": {**tries, "slug": slug, "message": "told"}}, "ends": {}}
    (bench.engine.state / "brake.json").write_text(json.dumps(record))
    held = bench.slurm.start(7, G[:2])
    shared = bench.slurm.start(9, G[1 : 2 + others])
    resume(bench.engine, asks(bench, held, shared))
    assert on(bench) == set()
    assert states(bench) == {7: "PENDING", 9: "PENDING"}
    assert bench.slurm.queue[7].held
    assert f"toolkit: {slug} held" in bench.slurm.queue[7].comment
    assert not bench.slurm.queue[9].held
    assert bench.slurm.queue[9].comment == (
        "toolkit: shared-node gpu-002, which it shares, was to be launched for job 7, which is held"
    )
    assert bench.engine.launch_budget.load().jobs.keys() == {7}


def test_a_component_is_not_launched_while_anothers_pool_is_protected(bench: Bench):
    now = bench.clock.now()
    standing = {"failures": 5, "since": now, "retry_at": now + 600, "probes": 0, "last": []}
    record = {"pools": {"cpu": standing}, "counted": {}}
    (bench.engine.state / "protection.json").write_text(json.dumps(record))
    shared = bench.slurm.start(9, (G[1], G[2]))
    resume(bench.engine, asks(bench, *het(bench), shared))
    assert on(bench) == {G[1], G[2]}
    assert states(bench) == {7: "PENDING", 8: "PENDING", 9: "RUNNING"}
    assert len(bench.cloud.machines) == 2
    assert "pool-protected" in bench.slurm.queue[7].comment


@pytest.mark.parametrize("code", [QUOTA, "InvalidParameterValue"])
def test_a_refusal_of_more_than_a_job_asked_for_holds_only_the_job_that_asked(
    bench: Bench, code: str
):
    launch = bench.cloud.launch

    def small(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        """Refuse a request for more than one node."""
        if len(request.nodes) > 1:
            intend()
            raise error_codes.error(code, "too much")
        return launch(request, intend)

    bench.cloud.launch = small  # type: ignore[method-assign]
    started = bench.slurm.start(7, G[:2]), bench.slurm.start(8, G[1:2])
    resume(bench.engine, asks(bench, *started))
    assert states(bench) == {7: "PENDING", 8: "PENDING"}
    assert [bench.slurm.queue[number].held for number in (7, 8)] == [True, False]


def test_a_refusal_of_no_more_than_each_job_needs_holds_them_all(bench: Bench):
    bench.cloud.refusals = dict.fromkeys((SPOT_A, SPOT_B, ON_DEMAND), QUOTA)
    started = bench.slurm.start(7, G[:1]), bench.slurm.start(8, G[:1])
    resume(bench.engine, asks(bench, *started))
    assert [bench.slurm.queue[number].held for number in (7, 8)] == [True, True]


def kept_alive(bench: Bench, node: hostlist.NodeName) -> None:
    """Leave the node an instance that EC2 refuses to terminate.

    The journal has the termination already.
    """
    resume(bench.engine, [bench.slurm.start(1, (node,))])
    bench.boot()
    (instance,) = bench.cloud.live()
    terminate = bench.cloud.terminate

    def end(ids: Sequence[str]) -> frozenset[str]:
        over = terminate([item for item in ids if item != instance.id])
        if instance.id in ids:
            kept = {
                instance.id: error_codes.error("OperationNotPermitted", "it may not be terminated")
            }
            raise SomeNotTerminated(over, kept)
        return over

    bench.cloud.terminate = end  # type: ignore[method-assign]
    bench.engine.journal.mark_terminating([instance.id], EndCause.SUSPEND)
    bench.slurm.finish(1)
    bench.slurm.define((node,))


@pytest.mark.parametrize("pool", ["gpu", "cpu"])
def test_a_component_is_not_launched_while_anothers_old_instance_lives(bench: Bench, pool: str):
    kept_alive(bench, {"gpu": G[0], "cpu": C[0]}[pool])
    before = len(bench.cloud.machines)
    other = bench.slurm.start(9, G[4:5])
    resume(bench.engine, asks(bench, *het(bench), other))
    assert len(bench.cloud.machines) == before + 1
    assert states(bench) == {7: "PENDING", 8: "PENDING", 9: "RUNNING"}
    assert "not-ended" in bench.slurm.queue[7].comment
    assert "not-ended" in bench.slurm.queue[8].comment
    assert [bench.slurm.queue[number].held for number in (7, 8)] == [False, False]


def test_a_job_is_not_launched_while_the_old_instance_of_its_shared_node_lives(bench: Bench):
    kept_alive(bench, G[0])
    before = len(bench.cloud.machines)
    first, second = bench.slurm.start(7, G[:1]), bench.slurm.start(8, G[:2])
    resume(bench.engine, asks(bench, first, second))
    assert len(bench.cloud.machines) == before
    assert states(bench) == {7: "PENDING", 8: "PENDING"}


def test_a_component_is_not_launched_once_another_has_lost_a_node(bench: Bench):
    wanted = asks(bench, *het(bench))

    def let_go(place: str) -> None:
        if place == "journal.claim: done" and "DOWN" not in bench.slurm.flags(C[0]):
            bench.slurm.down(C[:1], "bad NIC")
            bench.slurm.power_down(C[:1])

    resume(watch(bench.engine, let_go), wanted)
    assert bench.cloud.requests == []
    assert bench.slurm.state[G[0]].reason == "toolkit: not-awaited"


def test_an_adopted_instance_is_terminated_with_a_het_job_that_can_not_begin(bench: Bench):
    first, second = het(bench)
    resume(bench.engine, [first])
    assert on(bench) == set(G[:2])
    bench.cloud.capacity = {CPU: 0}
    resume(bench.engine, asks(bench, first, second))
    assert on(bench) == set()
    assert set(bench.engine.journal.view().termination_causes.values()) == {EndCause.RESUME_FAILED}


def test_a_component_of_a_later_call_uses_the_nodes_of_an_earlier_one(bench: Bench):
    first, second = het(bench)
    resume(bench.engine, [first])
    resume(bench.engine, [second])
    assert on(bench) == {*G[:2], C[0]}


def test_each_component_is_told_and_a_job_that_only_a_person_can_help_is_held(bench: Bench):
    bench.cloud.refusals = {CPU: "UnauthorizedOperation"}
    resume(bench.engine, asks(bench, *het(bench)))
    assert all(bench.slurm.queue[job].held for job in (7, 8))
    assert all("UnauthorizedOperation" in bench.slurm.queue[job].comment for job in (7, 8))
    assert [event["job"] for event in bench.events(LogEvent.NODES_GIVEN_BACK)] == [7, 8]


def test_a_job_with_only_shared_nodes_gets_its_comment_too(bench: Bench):
    bench.cloud.capacity = dict.fromkeys((SPOT_A, SPOT_B, ON_DEMAND), 0)
    mine, other = bench.slurm.start(7, G[:2]), bench.slurm.start(8, G[1:2])
    resume(bench.engine, asks(bench, mine, other))
    assert "InsufficientInstanceCapacity" in bench.slurm.queue[8].comment
    assert bench.slurm.writes.count(f"down {G[0]},{G[1]}") == 1


def test_a_node_stays_with_the_job_that_can_begin_when_the_het_job_on_it_can_not(bench: Bench):
    bench.cloud.capacity = {CPU: 0}
    other = bench.slurm.start(9, (G[1], G[2]))
    resume(bench.engine, asks(bench, *het(bench), other))
    assert on(bench) == {G[1], G[2]}
    assert states(bench) == {7: "PENDING", 8: "PENDING", 9: "RUNNING"}
    assert "POWERING_UP" in bench.slurm.flags(G[1])
    assert "InsufficientInstanceCapacity" in bench.slurm.queue[7].comment


def test_slurmctld_is_asked_for_het_jobs_once_however_many_jobs_there_are(bench: Bench):
    started = [bench.slurm.start(job, [node]) for job, node in enumerate(G, 1)]
    passed: list[str] = []
    resume(watch(bench.engine, passed.append), asks(bench, *started))
    assert passed.count("slurm.het_jobs: done") == 1


def test_slurmctld_is_not_asked_for_het_jobs_where_there_can_be_none(bench: Bench):
    started = [bench.slurm.start(job, [node]) for job, node in zip((1, 200), G, strict=False)]
    passed: list[str] = []
    resume(watch(bench.engine, passed.append), asks(bench, *started))
    assert passed.count("slurm.het_jobs: done") == 0


def test_a_slurmctld_that_does_not_tell_of_het_jobs_stops_no_launch(bench: Bench):
    def deaf() -> dict[int, int]:
        raise SlurmUnreachable("socket timed out")

    bench.slurm.het_jobs = deaf  # type: ignore[method-assign]
    resume(bench.engine, asks(bench, *het(bench)))
    assert on(bench) == {*G[:2], C[0]}


def test_the_lately_refused_part_of_a_request_is_launched_first(bench: Bench):
    bench.cloud.capacity = {CPU: 0}
    resume(bench.engine, [bench.slurm.start(6, C[1:2])])
    started = len(bench.cloud.machines)
    lone = bench.slurm.start(300, (G[4],))
    resume(bench.engine, asks(bench, *het(bench), lone))
    assert on(bench) == {G[4]}
    assert len(bench.cloud.machines) == started + 1
    bench.clock.advance(60)
    bench.cloud.capacity = {}
    bench.slurm.define([*G[:2], C[0]])
    resume(bench.engine, asks(bench, *het(bench)))
    assert on(bench) == {G[4], *G[:2], C[0]}, "it is had now, and so is the rest"


def test_a_job_over_two_pools_is_tried_with_the_refused_pool_first(bench: Bench):
    bench.cloud.capacity = {CPU: 0}
    resume(bench.engine, [bench.slurm.start(6, C[1:2])])
    resume(bench.engine, [bench.slurm.start(7, (*G[:2], C[0]))])
    assert bench.cloud.machines == {}
    assert states(bench)[7] == "PENDING"


# Quotas


def test_a_quota_that_other_jobs_of_ours_fill_holds_nobody(bench: Bench):
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    bench.cloud.refusals = dict.fromkeys((SPOT_A, SPOT_B), QUOTA)
    bench.cloud.capacity = {ON_DEMAND: 0}
    resume(bench.engine, [bench.slurm.start(8, G[2:4])])
    assert not bench.slurm.queue[8].held
    assert bench.slurm.state[G[2]].reason == f"toolkit: quota ({QUOTA})"


def test_a_quota_that_only_another_family_of_ours_is_in_holds_the_job(bench: Bench):
    resume(bench.engine, [bench.slurm.start(6, C[:1])])
    bench.cloud.refusals = dict.fromkeys((SPOT_A, SPOT_B, ON_DEMAND), QUOTA)
    resume(bench.engine, [bench.slurm.start(8, G[2:4])])
    assert bench.slurm.queue[8].held


def test_a_quota_that_only_the_jobs_own_instances_fill_holds_it(bench: Bench):
    first = bench.slurm.start(7, G[:2])
    resume(bench.engine, [first])
    bench.slurm.start(7, G[2:4])
    bench.cloud.refusals = dict.fromkeys((SPOT_A, SPOT_B, ON_DEMAND), QUOTA)
    resume(bench.engine, [JobRequest(7, G[:4])])
    assert bench.slurm.queue[7].held


def test_a_quota_that_static_nodes_fill_holds_the_job(bench: Bench):
    """Fill the quota with static nodes.

    Static nodes never free it by themselves.
    """
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    config = dataclasses.replace(bench.config, static_nodes=frozenset(G[:2]))
    bench.engine = dataclasses.replace(bench.engine, config=config)
    bench.cloud.refusals = dict.fromkeys((SPOT_A, SPOT_B, ON_DEMAND), QUOTA)
    resume(bench.engine, [bench.slurm.start(8, G[2:4])])
    assert bench.slurm.queue[8].held


def test_instances_of_a_jobs_last_try_do_not_count_against_its_quota(bench: Bench):
    bench.cloud.stale = 60
    bench.cloud.capacity = {CPU: 0}
    resume(bench.engine, [bench.slurm.start(7, (*G[:2], C[0]))])
    assert len(bench.cloud.machines) == 2
    bench.cloud.refusals = dict.fromkeys((SPOT_A, SPOT_B, ON_DEMAND), QUOTA)
    resume(bench.engine, [bench.slurm.start(8, G[2:4])])
    assert bench.slurm.queue[8].held


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("m7i.large", "c5.4xlarge", True),
        ("im4gn.large", "r5.large", True),
        ("g5.xlarge", "vt1.3xlarge", True),
        ("g5.xlarge", "p5.48xlarge", False),
        ("trn1.2xlarge", "t3.micro", False),
    ],
)
def test_families_share_a_quota_as_ec2_says(one: str, other: str, together: bool):
    assert (
        request_tracker.quota_name(one, "spot") == request_tracker.quota_name(other, "spot")
    ) == together
    assert request_tracker.quota_name(one, "spot") != request_tracker.quota_name(one, "on-demand")


def test_jobs_that_exceed_a_quota_together_are_launched_for_one_after_the_other(bench: Bench):
    launch, left = bench.cloud.launch, 4

    def limited(request, intend):
        if len(request.nodes) > left - len(bench.cloud.live()):
            intend()
            bench.cloud.calls.append("refused")
            raise error_codes.error(QUOTA, "more than the quota")
        return launch(request, intend)

    bench.cloud.launch = limited  # type: ignore[method-assign]
    started = [bench.slurm.start(job, [node]) for job, node in enumerate(G, 1)]
    resume(bench.engine, asks(bench, *started))
    assert on(bench) == set(G[:4])
    assert not any(job.held for job in bench.slurm.queue.values())
    assert bench.cloud.calls.count("refused") <= 12, "by halves, on each of three rungs"
