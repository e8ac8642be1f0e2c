"""The launch budget: few instances for a job that does not begin.

While no instance can be terminated, no job gets any.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from slurmplugins.cloud import error_codes
from slurmplugins.cloud.ec2 import Ec2
from slurmplugins.cloud.rate_limit import INSTANCES
from slurmplugins.head import assemble
from slurmplugins.model import hostlist
from slurmplugins.model.instance import BootFailure, BootResults, EndCause
from slurmplugins.model.launch import Failure, JobLaunch, JobResults, NodeRequest
from slurmplugins.model.node import Node
from slurmplugins.power_save import circuit_breaker
from slurmplugins.power_save.resume import launch_rate, resume
from slurmplugins.power_save.suspend import suspend
from slurmplugins.reconciler.run import run_pass
from slurmplugins.state import launch_budget, launch_budget_record, unavailable_offerings
from slurmplugins.state.journal import LISTING_DELAY_SECONDS
from slurmplugins.state.launch_budget_record import (
    LaunchHistory,
    Rate,
    Record,
    RefusedTerminations,
    UnresolvedLaunch,
)
from tests.fakes import request_rates
from tests.fakes.engine import ON_DEMAND, SPOT_A, SPOT_B, Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.launch import LaunchResult

G = hostlist.expand("gpu-[001-008]")
C = hostlist.expand("cpu-[1-4]")
CPU = "on-demand:m7i.large:us-east-1a"
NOW = 1_000_000.0
RATE = Rate(1000, 2, 450, is_configured=False)
TOLD = replace(RATE, is_configured=True)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def job(bench: Bench, nodes: Sequence[NodeName], number: int | None = 7) -> JobLaunch:
    pool = bench.config.pools[bench.config.pool_by_node[nodes[0]]]
    ladder = tuple((item,) for item in pool.offerings)
    return JobLaunch(number, (NodeRequest(number, tuple(nodes), pool, ladder),), tuple(nodes))


def tried(record: Record, launch: JobLaunch, started: int, rate: Rate = RATE) -> Record:
    """Record a failed launch of the job that started `started` instances."""
    screened = launch_budget.screen(record, [launch], NOW, rate)
    assert screened.permitted
    assert launch.job is not None
    charged = {launch.job: len(launch_budget.planned_nodes(launch))}
    return launch_budget.record_results(
        screened.record, charged, {launch.job: started}, {launch.job}
    )


def exhausted(bench: Bench) -> Record:
    record = Record()
    for _ in range(launch_budget_record.BUDGET_PER_NODE):
        record = tried(record, job(bench, G[:4]), 4)
    return launch_budget.screen(record, [job(bench, G[:4])], NOW, RATE).record


@pytest.mark.parametrize(("size", "rounds"), [(1, 6), (2, 3), (4, 3), (8, 3)])
def test_a_job_that_does_not_begin_is_held_after_three_times_its_nodes(
    bench: Bench, size: int, rounds: int
):
    record = Record()
    for _ in range(rounds):
        record = tried(record, job(bench, G[:size]), size)
    screened = launch_budget.screen(record, [job(bench, G[:size])], NOW, RATE)
    assert screened.permitted == ()
    (failure,) = screened.refusals
    assert (failure.reason_code, failure.hold) == ("launch-loop", True)
    assert failure.message.startswith(f"{size * rounds} instances were started for its {size}")


def test_launches_that_start_nothing_are_as_many_as_the_job_likes(bench: Bench):
    record = Record()
    for _ in range(100):
        record = tried(record, job(bench, G[:4]), 0)
    assert record.jobs == {}


def test_a_launch_whose_run_is_killed_counts_in_full(bench: Bench):
    record = Record()
    for _ in range(3):
        record = launch_budget.screen(record, [job(bench, G[:4])], NOW, RATE).record
    assert launch_budget.screen(record, [job(bench, G[:4])], NOW, RATE).permitted == ()


def test_the_largest_size_that_a_job_had_is_its_measure(bench: Bench):
    record = tried(Record(), job(bench, G[:4]), 4)
    for _ in range(8):
        record = tried(record, job(bench, G[:1]), 1)
    assert launch_budget.screen(record, [job(bench, G[:1])], NOW, RATE).permitted == ()


def test_jobs_have_budgets_of_their_own(bench: Bench):
    other = job(bench, G[4:], 8)
    assert launch_budget.screen(exhausted(bench), [other], NOW, RATE).permitted == (other,)


def test_a_job_that_is_not_held_yet_stays_barred_with_the_same_words(bench: Bench):
    """Screen a job twice after its budget is used up.

    The hold failed: slurmctld did not answer, or the job was not back in the queue yet.
    """
    record = exhausted(bench)
    first = launch_budget.screen(record, [job(bench, G[:4])], NOW, RATE)
    again = launch_budget.screen(first.record, [job(bench, G[:4])], NOW + 60, RATE)
    assert again.permitted == ()
    assert again.refusals == first.refusals


def test_a_job_that_a_person_has_released_has_a_fresh_budget(bench: Bench):
    record = launch_budget.mark_held(exhausted(bench), {7})
    screened = launch_budget.screen(record, [job(bench, G[:4])], NOW, RATE)
    assert screened.permitted
    assert screened.record.jobs[7].started == 4


def test_a_release_gives_a_fresh_budget_whatever_the_job_was_held_for(bench: Bench):
    """Hold a job for another reason than its launch budget.

    EC2 had said that the job may never get its instances, because of a quota for example.
    """
    record = launch_budget.mark_held(tried(Record(), job(bench, G[:4]), 4), {7})
    assert launch_budget.screen(record, [job(bench, G[:4])], NOW, RATE).record.jobs[7].started == 4


def up(nodes: Sequence[NodeName], *flags: str) -> Mapping[str, Node]:
    return {name: Node(name, frozenset({"ALLOCATED", "CLOUD", *flags})) for name in nodes}


def test_a_job_has_begun_when_all_its_nodes_are_up_and_not_before(bench: Bench):
    record = launch_budget.screen(Record(), [job(bench, G[:4])], NOW, RATE).record
    some = {**up(G[:3]), **up(G[3:4], "POWERING_UP", "NOT_RESPONDING")}
    assert launch_budget.forget_begun(record, some, NOW) == record
    assert (
        launch_budget.forget_begun(record, {**up(G[:3]), **up(G[3:4], "INVALID_REG")}, NOW)
        == record
    )
    assert launch_budget.forget_begun(record, up(G[:3]), NOW) == record
    assert launch_budget.forget_begun(record, up(G[:4]), NOW).jobs == {}


def test_nodes_that_come_up_for_others_are_no_beginning_of_a_job_that_failed(bench: Bench):
    record = tried(Record(), job(bench, G[:4]), 4)
    assert launch_budget.forget_begun(record, up(G[:4]), NOW) == record


def test_nodes_that_were_launched_for_another_job_since_are_no_beginning(bench: Bench):
    """Launch for a second job on nodes that the first one lost."""
    record = launch_budget.screen(Record(), [job(bench, G[:4])], NOW, RATE).record
    record = launch_budget.screen(record, [job(bench, G[3:5], 8)], NOW + 1000, RATE).record
    assert set(launch_budget.forget_begun(record, up(G[:5]), NOW + 1100).jobs) == {7}
    assert launch_budget.needs_begun_jobs(record)
    assert launch_budget.forget_jobs(record, {7, 9}).jobs.keys() == {8}


def test_jobs_of_one_call_keep_the_nodes_that_they_share(bench: Bench):
    both = [job(bench, G[:4]), job(bench, G[3:5], 8)]
    record = launch_budget.screen(Record(), both, NOW, RATE).record
    assert launch_budget.forget_begun(record, up(G[:5]), NOW).jobs == {}


def test_a_job_that_comes_back_late_without_having_begun_has_no_fresh_budget(bench: Bench):
    record = Record()
    for _ in range(3):
        record = tried(record, job(bench, G[:4]), 4)
    assert not record.jobs[7].slug
    for hours in (1, 6, 23):
        later = launch_budget.screen(record, [job(bench, G[:4])], NOW + hours * 3600, RATE)
        assert [item.reason_code for item in later.refusals] == ["launch-loop"]


def test_slurm_is_asked_who_has_begun_only_for_jobs_whose_launch_failed(bench: Bench):
    launched = launch_budget.screen(Record(), [job(bench, G[:4])], NOW, RATE).record
    failed = tried(Record(), job(bench, G[:4]), 4)
    assert not launch_budget.needs_begun_jobs(Record())
    assert not launch_budget.needs_begun_jobs(launched)
    assert launch_budget.needs_begun_jobs(failed)
    assert not launch_budget.needs_begun_jobs(launch_budget.mark_held(failed, {7}))


def test_a_job_that_is_not_launched_for_a_day_is_forgotten(bench: Bench):
    record = tried(Record(), job(bench, G[:4]), 4)
    assert launch_budget.forget_begun(record, {}, NOW + 23 * 3600) == record
    assert launch_budget.forget_begun(record, {}, NOW + 24 * 3600).jobs == {}
    assert launch_budget.forget_begun(record, {}, NOW - 24 * 3600).jobs == {}, (
        "the clock was set back"
    )


def test_a_pool_in_protected_mode_is_bounded_by_that_alone(bench: Bench):
    probe = job(bench, G[:4])
    screened = launch_budget.screen(exhausted(bench), [probe], NOW, RATE, {"gpu"})
    assert screened.permitted == (probe,)
    assert screened.record == exhausted(bench)


def test_a_job_of_a_pool_in_protected_mode_and_of_another_is_bounded_all_the_same(bench: Bench):
    """Screen a job of a protected pool and an unprotected one.

    Each try may start instances of the one pool for nothing, since the other has no capacity.
    """
    probe, other = job(bench, G[:3]), job(bench, C[:1])
    both = JobLaunch(7, (*probe.node_requests, *other.node_requests), (*probe.nodes, *other.nodes))
    screened = launch_budget.screen(exhausted(bench), [both], NOW, RATE, {"gpu"})
    assert (screened.permitted, screened.refusals[0].reason_code) == ((), launch_budget.LAUNCH_LOOP)


def test_nodes_that_no_job_is_known_to_want_are_not_counted(bench: Bench):
    record = Record()
    for _ in range(20):
        screened = launch_budget.screen(record, [job(bench, G[:1], None)], NOW, RATE)
        assert screened.permitted
        record = screened.record


# The launch rate


def large(bench: Bench, count: int) -> JobLaunch:
    return job(bench, [hostlist.NodeName(f"gpu-{number}") for number in range(1, count + 1)])


@pytest.fixture
def wide(tmp_path: Path) -> Bench:
    return Bench(tmp_path, nodes="gpu-[1-4000]")


def test_the_rate_that_is_assumed_is_that_of_the_pacer(bench: Bench):
    config = bench.engine.config
    rate = launch_rate(config.instance_rate, config.resume_timeout)
    assert (rate.burst, rate.per_second, rate.is_configured) == (
        INSTANCES.burst, INSTANCES.per_second, False,
    )  # fmt: skip
    assert rate.seconds == bench.config.resume_timeout / 2


@pytest.mark.parametrize(("count", "let"), [(1890, True), (1891, False)])
def test_a_job_above_the_told_rate_is_held_before_anything_is_started(
    wide: Bench, count: int, let: bool
):
    screened = launch_budget.screen(Record(), [large(wide, count)], NOW, TOLD)
    assert bool(screened.permitted) is let
    for failure in screened.refusals:
        assert (failure.reason_code, failure.hold) == ("rate-too-low", True)
        assert "1891 nodes are more than the 1890 instances" in failure.message
        assert "(burst 1000, per_second 2)" in failure.message


def test_a_job_above_the_published_rate_is_tried_since_the_account_may_have_more(wide: Bench):
    assert launch_budget.screen(Record(), [large(wide, 4000)], NOW, RATE).permitted


def test_a_node_may_be_launched_three_times_and_a_small_job_six():
    """Repeat the numbers that the state machine's law takes from the code."""
    budget = launch_budget_record
    assert (budget.BUDGET_PER_NODE, budget.SMALLEST_BUDGET) == (3, 6)


def test_a_job_larger_than_the_told_burst_begins_within_the_time_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Launch 300 nodes with a configured burst of 100.

    EC2 would refuse one call for the whole job for ever.
    """
    bench = at_a_low_rate(tmp_path, monkeypatch)
    resume(bench.engine, [bench.slurm.start(7, bench.config.pools["gpu"].nodes[:300])])
    assert len(bench.cloud.live()) == 300
    assert bench.slurm.queue[7].state == "RUNNING"


@pytest.mark.parametrize(("count", "launched"), [(950, 950), (951, 0)])
def test_the_largest_job_that_is_let_through_gets_all_its_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, launched: int
):
    """Let ResumeProgram take three of its 90 seconds to start."""
    bench = at_a_low_rate(tmp_path, monkeypatch)
    bench.clock.advance(3)
    resume(bench.engine, [bench.slurm.start(7, bench.config.pools["gpu"].nodes[:count])])
    assert len(bench.cloud.live()) == launched
    assert bench.slurm.queue[7].held is (launched == 0)


def at_a_low_rate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Make a bench with a burst of 100 and 10 a second."""
    rate = {"burst": 100.0, "per_second": 10.0}
    monkeypatch.setitem(request_rates.INSTANCES, "RunInstances", (100.0, 10.0))
    bench = Bench(folder, nodes="gpu-[001-999]", instance_rate=rate)
    bench.cloud.throttle.enabled = True
    paced = assemble.at_ec2s_pace(bench.cloud, bench.config, bench.clock)
    bench.engine = replace(bench.engine, cloud=paced)
    return bench


def test_a_fleet_does_not_draw_on_the_rate(wide: Bench):
    launch = large(wide, 4000)
    (ask,) = launch.node_requests
    fleets = replace(
        launch, node_requests=(replace(ask, fallback_order=(ask.pool.offerings[:2],)),)
    )
    assert launch_budget.screen(Record(), [fleets], NOW, TOLD).permitted


def test_a_told_rate_that_was_raised_lets_the_job_go_whether_it_was_held_or_not(wide: Bench):
    record = launch_budget.screen(Record(), [large(wide, 1901)], NOW, TOLD).record
    raised = replace(TOLD, burst=5000)
    assert launch_budget.screen(record, [large(wide, 1901)], NOW, raised).permitted


def test_a_het_job_is_judged_by_the_rate_as_one(wide: Bench):
    """Screen the components of a het job at the configured rate.

    slurmctld starts all components or none.
    """
    nodes = wide.config.pools["gpu"].nodes
    parts = [job(wide, nodes[:1000], 7), job(wide, nodes[1000:1901], 8), job(wide, nodes[2000:], 9)]
    whole = {7: 7, 8: 7}
    screened = launch_budget.screen(Record(), parts[:2], NOW, TOLD, (), het_jobs=whole)
    assert screened.permitted == ()
    assert [(item.job, item.reason_code, item.hold) for item in screened.refusals] == [
        (7, "rate-too-low", True), (8, "rate-too-low", True),
    ]  # fmt: skip
    fits = [parts[0], job(wide, nodes[1000:1890], 8), job(wide, nodes[2000:3000], 9)]
    assert launch_budget.screen(Record(), fits, NOW, TOLD, (), het_jobs=whole).permitted == tuple(
        fits
    )


def test_a_het_job_has_one_budget_for_all_its_components(bench: Bench):
    whole = {7: 7, 8: 7}
    parts = [job(bench, G[:4], 7), job(bench, C[:1], 8)]
    record = Record()
    for _ in range(3):
        record = launch_budget.screen(record, parts, NOW, RATE, (), het_jobs=whole).record
        record = launch_budget.record_results(record, {7: 5}, {7: 5}, {7})
    assert record.jobs == {7: LaunchHistory(5, 15, NOW, NOW)}
    screened = launch_budget.screen(record, parts, NOW, RATE, (), het_jobs=whole)
    assert screened.permitted == ()
    assert {item.hold for item in screened.refusals} == {True}
    assert launch_budget.screen(
        launch_budget.mark_held(screened.record, {7, 8}), parts, NOW, RATE, (), het_jobs=whole
    ).permitted


def test_a_het_job_has_begun_when_the_nodes_of_all_its_components_are_up(bench: Bench):
    parts = [job(bench, G[:4], 7), job(bench, C[:1], 8)]
    record = launch_budget.screen(Record(), parts, NOW, RATE, (), het_jobs={7: 7, 8: 7}).record
    assert launch_budget.forget_begun(record, up(G[:4]), NOW) == record
    assert launch_budget.forget_begun(record, up([*G[:4], *C[:1]]), NOW).jobs == {}


def test_a_het_job_that_ec2_serves_too_slowly_is_held_with_the_numbers_of_all_of_it(
    tmp_path: Path,
):
    bench = Bench(tmp_path, nodes="gpu-[0001-1300]")
    bench.cloud.throttle.enabled = True
    nodes = bench.config.pools["gpu"].nodes
    asks = [
        bench.slurm.start(7, nodes[:650], whole=7), bench.slurm.start(8, nodes[650:1300], whole=7),
    ]  # fmt: skip
    resume(bench.engine, asks)
    assert 0 < len(bench.cloud.machines) <= 1180
    assert bench.slurm.queue[7].held
    assert bench.slurm.queue[8].held
    text = f"EC2 started {len(bench.cloud.machines)} of 1300 instances"
    assert text in bench.slurm.queue[8].comment
    assert bench.engine.launch_budget.load().jobs.keys() == {7}
    assert bench.engine.launch_budget.load().jobs[7].held


THROTTLED = Failure(7, G, "throttled", "RequestLimitExceeded", "too many")


def test_a_job_that_ec2_served_too_slowly_is_held_and_told_what_it_gave(wide: Bench):
    failure = launch_budget.as_rate_failure(THROTTLED, 4000, 1800, RATE)
    assert (failure.reason_code, failure.hold) == ("rate-too-low", True)
    assert failure.message.startswith("EC2 started 1800 of 4000 instances in 450 s")
    assert "aws.instance_rate" in failure.message
    assert "is enough for 1890" in failure.message
    record = launch_budget.screen(Record(), [large(wide, 4000)], NOW, RATE).record
    record = launch_budget.record_rate_failures(
        launch_budget.record_results(record, {7: 4000}, {7: 1800}, {7}), [failure]
    )
    again = launch_budget.screen(record, [large(wide, 4000)], NOW, RATE)
    assert again.permitted == (), "the same launch and end is never made twice"
    assert again.refusals[0].message == failure.message


@pytest.mark.parametrize(
    ("failure", "asked", "started"),
    [
        (THROTTLED, 1890, 1800),  # Another call had emptied the account's bucket.
        (THROTTLED, 4000, 0),
        (replace(THROTTLED, reason_code="no-capacity"), 4000, 1800),
    ],
)
def test_other_failures_are_not_the_rates(failure: Failure, asked: int, started: int):
    assert launch_budget.as_rate_failure(failure, asked, started, RATE) == failure


# Refused terminations


def refused(times: int, code: str = "UnauthorizedOperation") -> Record:
    record = Record()
    for _ in range(times):
        record = launch_budget.record_terminations(record, NOW, code)
    return record


def test_three_refused_terminations_in_a_row_stop_all_launches_until_one_succeeds(bench: Bench):
    launches = [job(bench, G[:2]), job(bench, C[:1], 8), job(bench, G[2:3], None)]
    assert len(launch_budget.screen(refused(2), launches, NOW, RATE).permitted) == 3
    screened = launch_budget.screen(refused(3), launches, NOW, RATE)
    assert screened.permitted == ()
    assert {item.reason_code for item in screened.refusals} == {"not-ended"}
    assert {item.code for item in screened.refusals} == {"UnauthorizedOperation"}
    assert not any(item.hold for item in screened.refusals)
    assert screened.record.jobs == {}, "no job's budget is charged for it"
    assert (
        len(
            launch_budget.screen(
                launch_budget.record_terminations(refused(3), NOW, ""), launches, NOW, RATE
            ).permitted
        )
        == 3
    )


def test_a_warning_stands_while_nothing_can_be_terminated_and_not_after():
    assert launch_budget.block_reason(refused(2), NOW) == ""
    assert "(UnauthorizedOperation): nothing is launched" in launch_budget.block_reason(
        refused(3), NOW
    )


@pytest.mark.parametrize("later", [600.0, -600.0, 86_400.0, -86_400.0])
def test_where_nothing_is_left_to_end_launches_go_on_whatever_the_clock_says(
    bench: Bench, later: float
):
    assert launch_budget.screen(refused(3), [job(bench, G[:2])], NOW + later, RATE).permitted


def test_refusals_of_long_ago_do_not_add_up():
    record = launch_budget.record_terminations(refused(2), NOW + 601, "UnauthorizedOperation")
    assert record.ends == RefusedTerminations(1, "UnauthorizedOperation", NOW + 601, NOW + 601)


@pytest.mark.parametrize("code", ["OperationNotPermitted", "InvalidInstanceID.NotFound"])
def test_what_ec2_says_of_one_instance_stops_no_launch(bench: Bench, code: str):
    for _ in range(5):
        bench.engine.launch_budget.record_terminations((), error_codes.error(code, "not this one"))
    assert bench.engine.launch_budget.load() == Record()


# The file


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "[" * 100_000, '{"jobs": {}, "ends": 3}', '{"jobs": {"x": {}}, "ends": {}}',
        '{"jobs": {"7": {"asked": "x"}}, "ends": {}}',
        '{"jobs": {"7": {"asked": 1e999}}, "ends": {}}',
    ],
)  # fmt: skip
def test_a_damaged_record_gives_every_job_a_new_budget(bench: Bench, text: str):
    (bench.engine.state / "brake.json").write_text(text)
    assert bench.engine.launch_budget.load() == Record()


@pytest.mark.parametrize(
    "odd",
    [
        {"nodes": 5}, {"nodes": ["gpu-001"]}, {"nodes": {"gpu-001": 1}}, {"nodes": None},
        {"slug": 5}, {"slug": "x", "message": 5}, {"asked": -5}, {"started": -1}, {"new": 1},
    ],
)  # fmt: skip
def test_an_invalid_field_costs_one_job_its_count_and_stops_no_program(
    bench: Bench, odd: dict[str, Any]
):
    now = bench.clock.now()
    fine = {"asked": 2, "started": 4, "since": now, "at": now}
    text = json.dumps({"jobs": {"7": {**fine, **odd}, "8": fine}, "ends": {"count": 2}})
    (bench.engine.state / "brake.json").write_text(text)
    run_pass(bench.engine)
    assert bench.engine.launch_budget.load() == Record(
        {8: LaunchHistory(2, 4, now, now)}, RefusedTerminations(2)
    )
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert len(bench.cloud.live()) == 2


def test_only_true_says_that_slurm_holds_a_job(bench: Bench):
    text = json.dumps({"jobs": {"7": {"asked": 2, "held": "no"}}, "ends": {}})
    (bench.engine.state / "brake.json").write_text(text)
    assert not bench.engine.launch_budget.load().jobs[7].held


def test_the_record_survives_its_file(bench: Bench):
    launch = job(bench, G[:4])
    kept = bench.engine.launch_budget
    kept.screen([launch], TOLD, ())
    nodes = hostlist.compress(G[:4])
    now = bench.clock.now()
    assert bench.engine.launch_budget.load().jobs == {7: LaunchHistory(4, 4, now, now, nodes)}
    kept.started.unanswered_launches["a"] = G[2:]
    kept.record_results(JobResults(failures=(THROTTLED,)), TOLD)
    doubts = (UnresolvedLaunch("a", 2, now),)
    assert bench.engine.launch_budget.load().jobs == {
        7: LaunchHistory(4, 0, now, now, doubts=doubts)
    }


# The whole engine


def round_trip(bench: Bench, number: int, nodes: Sequence[NodeName]) -> None:
    """Give the job's nodes back and start the job on them again.

    By then the unavailable offerings are tried again beside the others.
    """
    bench.clock.advance(unavailable_offerings.CAPACITY_SECONDS + 1)
    for _ in range(2):
        bench.slurm.tick()
        gone, bench.slurm.suspended = bench.slurm.suspended, []
        suspend(bench.engine, gone, EndCause.SUSPEND)
        run_pass(bench.engine)
    resume(bench.engine, [bench.slurm.start(number, nodes)])


def test_a_job_of_two_pools_of_which_one_has_nothing_is_held_with_its_numbers(bench: Bench):
    bench.cloud.capacity = {CPU: 0}
    nodes = (*G[:2], *C[:1])
    resume(bench.engine, [bench.slurm.start(7, nodes)])
    for _ in range(4):
        round_trip(bench, 7, nodes)
    assert bench.slurm.queue[7].held
    assert len(bench.cloud.machines) == 8
    assert "launch-loop held" in bench.slurm.queue[7].comment
    assert "8 instances were started for its 3 nodes" in bench.slurm.queue[7].comment
    bench.slurm.release(7)
    bench.cloud.capacity = {}
    round_trip(bench, 7, nodes)
    assert len(bench.cloud.live()) == 3


def lose(bench: Bench, nodes: Sequence[NodeName]) -> None:
    """Take a job's nodes away, as an interruption does."""
    bench.slurm.down(nodes, "interrupted")
    bench.slurm.power_down(nodes)
    bench.slurm.tick()


def exhausted_job(bench: Bench) -> None:
    """Use up the budget of job 7."""
    bench.cloud.capacity = {CPU: 0}
    nodes = (*G[:2], *C[:1])
    resume(bench.engine, [bench.slurm.start(7, nodes)])
    for _ in range(3):
        round_trip(bench, 7, nodes)
    bench.cloud.capacity = {}
    assert bench.engine.launch_budget.load().jobs[7].started == 8


@pytest.mark.parametrize("begins", [True, False])
def test_only_a_job_that_began_on_nodes_of_others_is_launched_for_again(
    bench: Bench, *, begins: bool
):
    """Let a job run for hours on others' nodes, then lose them.

    No launch of the job brought its nodes, so only Slurm tells that the job began. In the other
    case it waits in the queue for the same hours.
    """
    exhausted_job(bench)
    nodes = (*G[:2], *C[:1])
    bench.clock.advance(unavailable_offerings.LONGEST)
    for _ in range(2):
        bench.slurm.tick()
        gone, bench.slurm.suspended = bench.slurm.suspended, []
        suspend(bench.engine, gone, EndCause.SUSPEND)
        run_pass(bench.engine)
    if begins:
        resume(bench.engine, [bench.slurm.start(8, nodes)])
        bench.boot()
        bench.slurm.finish(8)
        assert bench.slurm.schedule() == []
        assert bench.slurm.queue[7].state == "RUNNING"
    bench.clock.advance(3 * 3600)
    run_pass(bench.engine)
    assert (7 in bench.engine.launch_budget.load().jobs) is not begins
    if begins:
        lose(bench, nodes)
    round_trip(bench, 7, nodes)
    assert bench.slurm.queue[7].held is not begins
    assert {item.node for item in bench.cloud.live()} == (set(nodes) if begins else set())


def test_a_job_that_is_interrupted_again_and_again_is_launched_for_each_time(bench: Bench):
    nodes = (*G[:2], *C[:1])
    resume(bench.engine, [bench.slurm.start(7, nodes)])
    for _ in range(10):
        bench.clock.advance(60)
        bench.boot()
        run_pass(bench.engine)
        lose(bench, nodes)
        round_trip(bench, 7, nodes)
    assert not bench.slurm.queue[7].held
    assert {item.node for item in bench.cloud.live()} == set(nodes)
    assert len(bench.cloud.machines) == 33


def test_a_launch_loop_with_hours_between_its_launches_is_held(bench: Bench):
    bench.cloud.capacity = {CPU: 0}
    nodes = (*G[:2], *C[:1])
    resume(bench.engine, [bench.slurm.start(7, nodes)])
    for _ in range(8):
        bench.clock.advance(3 * 3600)
        if not bench.slurm.queue[7].held:
            round_trip(bench, 7, nodes)
    assert bench.slurm.queue[7].held
    assert len(bench.cloud.machines) == 8


def test_a_hold_that_slurmctld_did_not_take_gives_no_fresh_budget(bench: Bench):
    bench.cloud.capacity = {CPU: 0}
    nodes = (*G[:2], *C[:1])
    refuse = bench.slurm.hold
    bench.slurm.hold = bench.slurm.requeue  # type: ignore[method-assign]  # requeue refuses
    resume(bench.engine, [bench.slurm.start(7, nodes)])
    for _ in range(8):
        round_trip(bench, 7, nodes)
    bench.slurm.hold = refuse  # type: ignore[method-assign]
    assert len(bench.cloud.machines) == 8


def test_a_job_that_the_default_rate_can_not_serve_is_tried_once_and_held(tmp_path: Path):
    bench = Bench(tmp_path, nodes="gpu-[1-1300]")
    bench.cloud.throttle.enabled = True
    nodes = bench.config.pools["gpu"].nodes
    resume(bench.engine, [bench.slurm.start(7, nodes)])
    assert 0 < len(bench.cloud.machines) <= 1180
    bench.clock.advance(15)
    run_pass(bench.engine)  # EC2 terminates 1,000 at once.
    assert bench.cloud.live() == []
    assert bench.slurm.queue[7].held
    assert "rate-too-low (RequestLimitExceeded) held" in bench.slurm.queue[7].comment


def unanswered(bench: Bench, rounds: int) -> None:
    """Start the job on other nodes each round, without EC2's answer."""
    for number in range(rounds):
        bench.cloud.lose_answers = 6
        chosen = G[2 * number : 2 * number + 2]
        resume(bench.engine, [bench.slurm.start(7, chosen)])
        bench.clock.advance(10)
        bench.slurm.tick()
        suspend(bench.engine, bench.slurm.suspended, EndCause.SUSPEND)
        bench.slurm.suspended = []


def test_launches_that_got_no_answer_keep_a_job_waiting_and_hold_nobody(bench: Bench):
    """Answer four launches with HTTP 503.

    Ten minutes of such answers are no fault of the job.
    """
    bench.cloud.launch = nothing  # type: ignore[method-assign]
    unanswered(bench, 4)
    tries = bench.engine.launch_budget.load().jobs[7]
    assert (tries.started, tries.unresolved_count) == (0, 6)
    assert not bench.slurm.queue[7].held
    assert "toolkit: launch-in-doubt launches without an answer may" in bench.slurm.queue[7].comment
    bench.clock.advance(LISTING_DELAY_SECONDS)
    run_pass(bench.engine)
    assert bench.engine.launch_budget.load().jobs == {}


def nothing(_: object, intend: Callable[[], None]) -> LaunchResult:
    """Answer with HTTP 503 in place of EC2, which gets no request."""
    intend()
    raise error_codes.answer_error("503", 503, "")


def test_instances_of_launches_that_got_no_answer_count_once_ec2_lists_them(bench: Bench):
    unanswered(bench, 4)
    assert len(bench.cloud.machines) == 6
    assert not bench.slurm.queue[7].held
    run_pass(bench.engine)
    tries = bench.engine.launch_budget.load().jobs[7]
    assert (tries.started, tries.doubts) == (6, ())
    resume(bench.engine, [bench.slurm.start(7, G[6:8])])
    assert bench.slurm.queue[7].held
    assert len(bench.cloud.machines) == 6


def test_a_launch_is_unresolved_while_ec2_may_not_list_its_instances_yet():
    record = Record({7: LaunchHistory(2, 0, NOW, NOW, doubts=(UnresolvedLaunch("a", 2, NOW),))})
    assert launch_budget.resolve_launches(record, (), NOW - 1) == record
    assert launch_budget.resolve_launches(record, (), NOW).jobs == {}
    assert launch_budget.resolve_launches(record, {"a"}, NOW - 1).jobs == {
        7: LaunchHistory(2, 2, NOW, NOW)
    }


@pytest.mark.parametrize("odd", [5, [], ["a"], {"attempt": 5}, {"count": "2"}, {"at": None}])
def test_an_invalid_unresolved_launch_costs_one_job_its_count(bench: Bench, odd: object):
    doubt = {"attempt": "a", "count": 2, "at": 1.0}
    doubt = {**doubt, **odd} if isinstance(odd, dict) else odd
    jobs = {"7": {"asked": 2, "doubts": [doubt]}, "8": {"asked": 2}}
    text = json.dumps({"jobs": jobs, "ends": {}})
    (bench.engine.state / "brake.json").write_text(text)
    assert bench.engine.launch_budget.load().jobs == {8: LaunchHistory(2)}


class Nameless:
    """An EC2 client whose instances never get their tags.

    The adapter terminates them itself.
    """

    def __init__(self) -> None:
        self.started = 0

    def run_instances(self, *, MinCount: int, **_: object) -> dict[str, Any]:  # noqa: N803 - boto3's
        state = {"State": {"Name": "pending"}}
        return {"Instances": [{"InstanceId": key, **state} for key in self._ids(MinCount)]}

    def create_fleet(self, *, TargetCapacitySpecification: Any, **_: object) -> dict[str, Any]:  # noqa: N803
        ids = self._ids(TargetCapacitySpecification["TotalTargetCapacity"])
        return {"Instances": [{"InstanceIds": ids}]}

    def create_tags(self, **_: object) -> None:
        raise ClientError({"Error": {"Code": "RequestLimitExceeded"}}, "CreateTags")

    def terminate_instances(self, **_: object) -> dict[str, Any]:
        return {"TerminatingInstances": []}

    def describe_instances(self, **_: object) -> dict[str, Any]:
        return {"Reservations": []}

    def describe_instance_status(self, **_: object) -> dict[str, Any]:
        return {"InstanceStatuses": []}

    def describe_spot_instance_requests(self, **_: object) -> dict[str, Any]:
        return {"SpotInstanceRequests": []}

    def _ids(self, count: int) -> list[str]:
        self.started += count
        return [f"i-{self.started - index:017x}" for index in range(count)]


@pytest.mark.parametrize("fleet", [False, True])
def test_instances_that_the_adapter_itself_ends_count(bench: Bench, *, fleet: bool):
    client = Nameless()
    pool = bench.config.pools["gpu"]
    if fleet:
        first = pool.offerings[0]
        pool = replace(pool, offerings=(first, replace(first, type="g5.2xlarge")))
    bench.config = replace(bench.config, pools={**bench.config.pools, "gpu": pool})
    cloud = Ec2("demo", lambda: client, bench.clock)
    bench.engine = replace(bench.engine, config=bench.config, cloud=cloud)
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    for _ in range(8):
        if not bench.slurm.queue[7].held:
            round_trip(bench, 7, G[:2])
    assert bench.slurm.queue[7].held
    assert "launch-loop held" in bench.slurm.queue[7].comment
    assert client.started == 6


def test_instances_of_one_offering_group_count_with_those_of_the_next(bench: Bench):
    """Launch two jobs in a call that EC2 answers in part.

    The larger job gets its nodes from the next offering group.
    """
    bench.cloud.capacity = {SPOT_A: 4, SPOT_B: 8}
    first, second = bench.slurm.start(7, G[:1]), bench.slurm.start(8, G[1:6])
    resume(bench.engine, [first, second])
    tries = bench.engine.launch_budget.load().jobs
    assert (tries[7].started, tries[8].started) == (1, 8)
    assert len(bench.cloud.live()) == 6


def test_an_instance_marked_for_termination_that_can_be_terminated_now_makes_way_for_a_new_one(
    bench: Bench,
):
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    old = {item.id for item in bench.cloud.live()}
    bench.engine.journal.mark_terminating(old, EndCause.SUSPEND)
    resume(bench.engine, bench.slurm.asks())
    live = bench.cloud.live()
    assert {item.node for item in live} == set(G[:2])
    assert old.isdisjoint(item.id for item in live)


def test_a_job_beside_one_whose_old_instance_can_not_be_terminated_is_launched_for(bench: Bench):
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    bench.engine.journal.mark_terminating(
        [item.id for item in bench.cloud.live()], EndCause.SUSPEND
    )
    bench.cloud.end_error = error_codes.error("UnauthorizedOperation", "not yours")
    resume(bench.engine, [*bench.slurm.asks(), bench.slurm.start(8, G[4:6])])
    assert {item.node for item in bench.cloud.live()} == {*G[:2], *G[4:6]}
    assert len(bench.cloud.live()) == 4
    assert bench.slurm.state[G[0]].reason == "toolkit: not-ended (UnauthorizedOperation)"
    assert not bench.slurm.queue[7].held


def test_nothing_is_launched_beside_an_unlisted_instance_marked_for_termination(bench: Bench):
    bench.cloud.lag = 60.0
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    bench.engine.journal.mark_terminating(
        [item.id for item in bench.cloud.live()], EndCause.SUSPEND
    )
    resume(bench.engine, bench.slurm.asks())
    assert len(bench.cloud.live()) == 2
    assert bench.slurm.state[G[0]].reason == "toolkit: not-ended"


def test_a_job_of_a_broken_pool_is_left_to_protected_mode(bench: Bench):
    """Start a job eight times while its pool is in protected mode.

    The jobs of such a pool start by themselves once the pool is mended.
    """
    failures = [
        BootFailure(f"i-{number}", G[0], "gpu", "it did not come up", NOW, NOW - 240)
        for number in range(5)
    ]
    circuit_breaker.update(bench.engine.state, BootResults(tuple(failures)), bench.clock.now())
    bench.cloud.capacity = {SPOT_A: 0, SPOT_B: 0, ON_DEMAND: 0}
    for _ in range(8):
        bench.clock.advance(3600)
        resume(bench.engine, [bench.slurm.start(7, G[:1])])
        round_trip(bench, 7, G[:1])
        bench.slurm.tick()
        run_pass(bench.engine)
        bench.clock.advance(61)
        bench.slurm.tick()
        run_pass(bench.engine)
    assert not bench.slurm.queue[7].held
    assert bench.engine.launch_budget.load().jobs == {}
