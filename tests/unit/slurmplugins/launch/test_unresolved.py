"""Unresolved launches, repeated with the same client token."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.cloud.rate_limit import Rate, RateLimitedCloud
from slurmplugins.launch import launch_call
from slurmplugins.model import hostlist
from slurmplugins.model.instance import Lifecycle, Offering
from slurmplugins.model.launch import JobRequest, LaunchRequest, LaunchResult
from slurmplugins.power_save.resume import resume
from slurmplugins.state.journal import LISTING_DELAY_SECONDS
from slurmplugins.system.workers import WorkerPool
from tests.fakes.clock import START
from tests.fakes.engine import ON_DEMAND, SPOT_A, SPOT_B, Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from slurmplugins.model.hostlist import NodeName

G = hostlist.expand("gpu-[001-008]")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def unanswered(bench: Bench, *, happened: bool) -> JobRequest:
    """Launch a job without EC2's answer, then request the job again.

    With `happened`, EC2 has started the instances. Returns the second job request.
    """
    ask = bench.slurm.start(7, G[:2])
    if happened:
        bench.cloud.lose_answers = 99
    else:
        bench.cloud.next_errors = [error_codes.error("Unreachable", "no answer")] * 5
    resume(bench.engine, [ask])
    bench.cloud.lose_answers = 0
    assert bench.slurm.queue[7].state == "PENDING"
    bench.slurm.define(G[:2])
    return bench.slurm.start(7, G[:2])


@pytest.mark.parametrize("happened", [True, False])
def test_the_next_resume_resolves_the_launch_and_the_job_runs(bench: Bench, happened: bool):
    ask = unanswered(bench, happened=happened)
    bench.cloud.lag = 60
    resume(bench.engine, [ask])
    assert [item.node for item in bench.cloud.live()] == list(G[:2])
    assert len(bench.cloud.requests) == 1
    assert bench.slurm.queue[7].state == "RUNNING"
    assert bench.slurm.state[G[0]].instance_id == bench.cloud.live()[0].id


def test_a_launch_that_turns_out_to_have_failed_is_followed_by_the_next_offering(bench: Bench):
    ask = unanswered(bench, happened=False)
    bench.cloud.capacity = {SPOT_A: 0, SPOT_B: 0}
    resume(bench.engine, [ask])
    assert {item.lifecycle for item in bench.cloud.live()} == {Lifecycle.ON_DEMAND}
    assert len(bench.cloud.live()) == 2
    assert bench.cloud.requests[-1].offering.key == ON_DEMAND


@pytest.mark.parametrize(
    "code", ["IdempotentParameterMismatch", "Unreachable", "UnauthorizedOperation"]
)
def test_a_launch_that_a_repeat_does_not_resolve_stays_unresolved(bench: Bench, code: str):
    ask = unanswered(bench, happened=True)
    bench.cloud.lag = 600
    bench.cloud.next_errors = [error_codes.error(code, "no")]
    for machine in bench.cloud.machines.values():
        machine.visible_at = bench.clock.monotonic() + 600
    resume(bench.engine, [ask])
    assert len(bench.cloud.live()) == 2
    assert bench.slurm.state[G[0]].reason == "toolkit: launch-in-doubt"


ONE_OF_EACH = {kind: code for code, kind in reversed(error_codes.CLASSES.items())}


@pytest.mark.parametrize("code", [*ONE_OF_EACH.values(), "NeverSeenBefore"])
def test_a_launch_without_an_answer_stays_unresolved_until_ec2_judges_that_request(
    bench: Bench, code: str
):
    said = error_codes.error(code, "no")
    bench.cloud.next_errors = [error_codes.error("Unreachable", "no answer"), *[said] * 20]
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    doubtful = set() if said.resolves_launch else set(G[:2])
    assert bench.engine.journal.view().unresolved_nodes == doubtful


@pytest.mark.parametrize("code", ["NeverSeenBefore", "UnauthorizedOperation", "SlowDown"])
def test_no_node_has_two_instances_after_an_answer_about_another_call(bench: Bench, code: str):
    bench.cloud.lag = 110
    bench.cloud.lose_answers = 1
    bench.cloud.next_errors = [None, *[error_codes.error(code, "no")] * 20]
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    bench.cloud.next_errors = []
    bench.slurm.define(G[:2])
    resume(bench.engine, [bench.slurm.start(8, G[:2])])
    assert [item.node for item in bench.cloud.live()] == list(G[:2])


def test_an_unanswered_repeat_is_unresolved_from_its_own_time_on(bench: Bench):
    """Leave the repeat of a launch unanswered, 100 seconds later.

    The repeat may start instances long after the first call counts as resolved.
    """
    ask = unanswered(bench, happened=False)
    bench.clock.advance(100)
    bench.cloud.next_errors = [error_codes.error("Unreachable", "no answer")]
    resume(bench.engine, [ask])
    bench.clock.advance(60)
    assert bench.engine.journal.view().unresolved_nodes == set(G[:2])
    bench.clock.advance(61)
    assert bench.engine.journal.view().unresolved_nodes == set()


SAYS_NOTHING = ["IdempotentParameterMismatch", "SlowDown", "UnauthorizedOperation", "NeverSeen"]


@pytest.mark.parametrize("code", SAYS_NOTHING)
def test_an_unresolved_launch_expires_two_minutes_after_its_last_unanswered_call(
    bench: Bench, code: str
):
    ask = unanswered(bench, happened=False)
    silent = bench.clock.monotonic()
    while bench.clock.monotonic() <= silent + LISTING_DELAY_SECONDS:
        bench.cloud.next_errors = [error_codes.error(code, "no")]
        resume(bench.engine, [ask])
        assert bench.slurm.state[G[0]].reason == "toolkit: launch-in-doubt"
        bench.clock.advance(15)
        bench.slurm.define(G[:2])
        ask = bench.slurm.start(7, G[:2])
    assert bench.engine.journal.view().unresolved_nodes == set()


def test_a_launch_whose_instances_have_terminated_is_resolved(bench: Bench):
    ask = unanswered(bench, happened=True)
    for machine in bench.cloud.live():
        bench.cloud.end(machine.id, "Client.UserInitiatedShutdown")
    bench.clock.advance(10)
    resume(bench.engine, [ask])
    assert bench.slurm.queue[7].state == "RUNNING"
    assert [item.node for item in bench.cloud.live()] == list(G[:2])


def test_a_repeat_that_was_not_sent_leaves_the_launch_unresolved(bench: Bench):
    """Refuse the repeat of a launch before it is sent.

    A lack of credentials has this effect: the error is no answer of EC2.
    """
    ask = unanswered(bench, happened=False)

    def refuse(*_: object) -> None:
        raise error_codes.error("InvalidParameterValue", "before anything was asked")

    launch, bench.cloud.launch = bench.cloud.launch, refuse  # type: ignore[assignment]
    resume(bench.engine, [ask])
    bench.cloud.launch = launch  # type: ignore[method-assign]
    assert bench.engine.journal.view().unresolved_nodes == set(G[:2])


def patient(folder: Path) -> Bench:
    """Make a bench with an hour as ResumeTimeout."""
    return Bench(folder, slurm={"bin": "/usr/bin", "resume_timeout": 3600})


def test_an_unanswered_launch_is_unresolved_for_any_wait_before_its_call(
    tmp_path: Path,
):
    bench = patient(tmp_path)
    slow = RateLimitedCloud(
        bench.cloud, bench.clock, patience=1000, launch_until=math.inf, instances=Rate(2, 0.01)
    )
    bench.engine = replace(bench.engine, cloud=slow)
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    bench.cloud.next_errors = [error_codes.error("Unreachable", "no answer")] * 5
    resume(bench.engine, [bench.slurm.start(8, G[2:4])])
    assert bench.clock.now() - START > LISTING_DELAY_SECONDS
    assert bench.engine.journal.view().unresolved_nodes == set(G[2:4])


def test_an_unanswered_launch_is_unresolved_for_any_throttling_before_it(tmp_path: Path):
    bench = patient(tmp_path)
    throttled = [error_codes.error("RequestLimitExceeded", "slow down")] * 20
    bench.cloud.next_errors = [*throttled, *[error_codes.error("Unreachable", "no answer")] * 5]
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    assert bench.clock.now() - START > LISTING_DELAY_SECONDS
    assert bench.engine.journal.view().unresolved_nodes == set(G[:2])


def test_unresolved_launches_of_nodes_that_no_job_wants_are_left_alone(bench: Bench):
    unanswered(bench, happened=True)
    before = bench.cloud.calls.count("launch")
    resume(bench.engine, [bench.slurm.start(8, G[4:5])])
    assert bench.cloud.calls.count("launch") == before + 1


def test_an_unresolved_launch_with_a_claimed_node_is_left_to_the_claimant(bench: Bench):
    ask = unanswered(bench, happened=True)
    before = bench.cloud.calls.count("launch")
    with bench.engine.journal.resume_process() as other:
        bench.engine.journal.claim(other, lambda _: G[1:2])
        resume(bench.engine, [ask])
    assert bench.cloud.calls.count("launch") == before


def killed_before_its_call(bench: Bench, nodes: Sequence[NodeName]) -> None:
    """Record a launch whose process dies before the call.

    The nodes have been powered down since then.
    """
    offering = bench.config.pools["gpu"].offerings[0]
    request = LaunchRequest(
        nodes[0].replace("-", ""),
        "demo",
        "gpu",
        "spot",
        "demo-gpu",
        "subnet-a",
        offering,
        tuple(nodes),
    )
    with bench.engine.journal.resume_process() as run:
        bench.engine.journal.claim(run, lambda _: nodes)
        bench.engine.journal.record_call(request, run, [1])


def test_a_repeated_launch_starts_no_instance_for_a_powered_down_node(bench: Bench):
    killed_before_its_call(bench, G)
    resume(bench.engine, [bench.slurm.start(2, G[:1])])
    assert bench.cloud.live() == []
    assert bench.slurm.state[G[0]].reason == "toolkit: launch-in-doubt"


def test_no_job_adopts_an_instance_launched_before_slurm_powered_up_its_node(bench: Bench):
    killed_before_its_call(bench, G)
    resume(bench.engine, [bench.slurm.start(2, G[:1])])
    bench.clock.advance(LISTING_DELAY_SECONDS + 1)
    resume(bench.engine, [bench.slurm.start(3, G[1:])])
    assert {item.node for item in bench.cloud.live()} == set(G[1:])
    bench.clock.advance(60)
    bench.boot()
    assert not [node for node in G[1:] if "POWERING_UP" in bench.slurm.flags(node)]


def test_no_launch_is_repeated_while_slurm_can_not_be_read(bench: Bench):
    ask = unanswered(bench, happened=False)
    before = bench.cloud.calls.count("launch")
    bench.slurm.unreachable = True
    resume(bench.engine, [ask])
    assert bench.cloud.calls.count("launch") == before


def test_unresolved_launches_are_repeated_together_and_none_after_the_programs_time(bench: Bench):
    for number in range(4):
        killed_before_its_call(bench, G[2 * number : 2 * number + 2])
    bench.engine = replace(bench.engine, workers=WorkerPool(4))
    together = threading.Barrier(4, timeout=5)
    launch = bench.cloud.launch

    def meeting(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        together.wait()
        return launch(request, intend)

    ask = bench.slurm.start(7, G)
    bench.cloud.launch = meeting  # type: ignore[method-assign]
    with bench.engine.journal.resume_process() as run:
        wanted = frozenset(bench.engine.journal.claim(run, lambda _: G))
        launch_call.resolve(bench.engine, run, wanted, bench.clock.monotonic() - 1)
        assert bench.cloud.live() == []
        launch_call.resolve(bench.engine, run, wanted, bench.clock.monotonic())
    assert {item.node for item in bench.cloud.live()} == set(ask.nodes)


@pytest.mark.parametrize("code", ["", "InsufficientInstanceCapacity", "Unreachable"])
def test_claims_on_nodes_that_no_job_wants_are_released_once_the_launch_is_resolved(
    bench: Bench, code: str
):
    """Resolve a launch of two nodes, of which a job wants one.

    A launch that stays unresolved is unresolved for every process.
    """
    unanswered(bench, happened=False)
    bench.cloud.next_errors = [error_codes.error(code, "no")] if code else []
    engine = bench.engine
    with engine.journal.resume_process() as run:
        wanted = frozenset(engine.journal.claim(run, lambda _: G[:1]))
        launch_call.resolve(engine, run, wanted, math.inf)
        claims = engine.journal.view()
    assert claims.claimed_nodes == {G[0]}
    assert (G[1] in claims.unresolved_nodes) == (code == "Unreachable")


def test_a_request_read_from_the_journal_equals_the_one_written():
    offering = Offering(
        "p5.48xlarge", Lifecycle.ON_DEMAND, "us-east-1a", "1", "cr-0abc", block=True
    )
    other = Offering("p5e.48xlarge", Lifecycle.ON_DEMAND, "us-east-1a", "2")
    request = LaunchRequest(
        "a1", "demo", "gpu", "p", "t", "", offering, G[:3], others=(other,), least=2
    )
    assert LaunchRequest.from_record(request.to_record()) == request
