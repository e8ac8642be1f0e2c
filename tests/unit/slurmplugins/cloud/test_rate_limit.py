"""Pace of large launches and the number of EC2's refusals.

The clock is a fake. EC2 here consists of the token buckets that it publishes, behind a network of
50 ms each way.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.cloud.rate_limit import (
    INSTANCES,
    RUN_INSTANCES,
    Rate,
    RateEstimate,
    RateLimitedCloud,
    TokenQueue,
)
from slurmplugins.config.burst import CAPACITY_SHARE
from slurmplugins.head.assemble import WORKERS, at_ec2s_pace
from slurmplugins.launch import batching
from slurmplugins.model import hostlist
from slurmplugins.power_save.resume import resume
from slurmplugins.system.log_events import LogEvent
from tests.fakes import request_rates
from tests.fakes.clock import FakeClock
from tests.fakes.engine import Bench
from toolkit.local.aws import request_rates as local_rates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurmplugins.cloud.rate_limit import QueuePlace
    from slurmplugins.model.launch import JobRequest, LaunchRequest, LaunchResult

G = hostlist.expand("gpu-[0001-4000]")
HOP = 0.05
THROTTLED = "RequestLimitExceeded"
RAISED = Rate(1000, 200)
NEAR = 1.3
"""Allowed factor over the floor: the time that EC2's bucket alone needs, for any caller."""


def floor(instances: int, rate: Rate) -> float:
    return max(0.0, (instances - rate.burst) / rate.per_second)


# Eight calls under way at once, as resume makes them


@dataclass
class Race:
    """Concurrent launch calls against EC2's buckets, eight by default.

    Each event happens at its own time, in order.
    """

    account: Rate
    told: bool
    hop: float = HOP
    clock: FakeClock = field(default_factory=lambda: FakeClock(0.0))
    refused: list[float] = field(default_factory=list)
    asked: int = 0

    def __post_init__(self) -> None:
        self._ours = TokenQueue(
            self.account if self.told else INSTANCES, self.clock, adaptive=not self.told
        )
        self._turns = TokenQueue(RUN_INSTANCES, self.clock)
        burst = self.account.burst
        self._ec2 = local_rates.TokenBucket(burst, self.account.per_second, burst, 0.0)
        self._calls = local_rates.TokenBucket(5, 2, 5, 0.0)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._left: list[int] = []

    def run(self, *parts: int, at_once: int = 8) -> float:
        """Run all calls; return the seconds until the last is granted."""
        self._left = list(parts)
        for _ in range(at_once):
            self._next()
        while self._due:
            at, _, step = heapq.heappop(self._due)
            self.clock.advance(at - self.clock.monotonic())
            step()
        return self.clock.monotonic()

    def _in(self, seconds: float, step: Callable[[], None]) -> None:
        self.asked += 1
        heapq.heappush(self._due, (self.clock.monotonic() + seconds, self.asked, step))

    def _next(self) -> None:
        if self._left:
            self._enter(self._left.pop(0), 1.0)

    def _enter(self, part: int, pause: float) -> None:
        self._wait(part, pause, self._ours.join_queue(part), self._turns.join_queue(1))

    def _wait(self, part: int, pause: float, place: QueuePlace, turn: QueuePlace) -> None:
        wait = max(self._ours.wait(place), self._turns.wait(turn))
        if wait > 0.001:
            self._in(min(wait, 0.5), lambda: self._wait(part, pause, place, turn))
        else:
            self._in(self.hop, lambda: self._arrive(part, pause, place))

    def _arrive(self, part: int, pause: float, place: QueuePlace) -> None:
        now = self.clock.monotonic()
        if self._calls.spend(1, now) and self._ec2.spend(part, now):
            self._in(self.hop, lambda: self._granted(place))
        else:
            self.refused.append(now)
            self._in(self.hop, lambda: self._refused(part, pause, place))

    def _granted(self, place: QueuePlace) -> None:
        self._ours.record_success(place)
        self._next()

    def _refused(self, part: int, pause: float, place: QueuePlace) -> None:
        """Repeat the call after a pause that doubles, as `launch_call` does."""
        self._ours.record_refusal(place)
        self._in(pause, lambda: self._enter(part, min(2 * pause, 20.0)))


@pytest.mark.parametrize("hop", [0.0, HOP, 0.2])
@pytest.mark.parametrize("account", [RAISED, Rate(1000, 2), Rate(5000, 20), Rate(1000, 50)])
def test_a_known_rate_is_used_to_the_full_and_never_refused(account: Rate, hop: float):
    race = Race(account, told=True, hop=hop)
    took = race.run(*[250] * 16)
    calls = (16 - RUN_INSTANCES.burst) / RUN_INSTANCES.per_second
    assert took <= max(floor(4000, account), calls) + 1
    assert race.refused == []


@pytest.mark.parametrize("hop", [0.0, HOP, 0.2])
@pytest.mark.parametrize(
    "account", [RAISED, Rate(1000, 20), Rate(1000, 50), Rate(2000, 500), Rate(5000, 20)]
)
def test_an_account_that_has_more_than_published_is_used_near_to_its_floor(
    account: Rate, hop: float
):
    race = Race(account, told=False, hop=hop)
    took = race.run(*[250] * 16)
    assert took <= NEAR * max(floor(4000, account), 6.0)
    assert len(race.refused) <= 8


def test_an_account_that_has_what_is_published_is_asked_in_vain_but_a_few_times():
    race = Race(INSTANCES, told=False)
    took = race.run(*[250] * 16)
    assert took <= 1.02 * floor(4000, INSTANCES)
    assert len(race.refused) <= 16, "in 25 minutes"


def test_a_bucket_that_another_run_has_emptied_costs_a_few_refusals():
    race = Race(RAISED, told=False)
    assert race._ec2.spend(1000, 0.0)
    assert race.run(*[250] * 16) <= 2 * 4000 / RAISED.per_second
    assert len(race.refused) <= 10


# The estimated rate


def test_the_guess_halves_at_a_refusal_and_never_falls_below_what_is_published():
    guess = RateEstimate.initial(INSTANCES)
    assert guess.per_second == 250
    rates = []
    while not guess.is_final:
        guess = guess.after_refusal()
        rates.append(guess.per_second)
    assert rates == [125, 62.5, 31.25, 15.625, 7.8125, 3.90625, 2]
    assert guess.after_refusal().per_second == guess.after_success().per_second == 2


def test_the_guess_rises_by_equal_steps_while_ec2_refuses_nothing():
    guess = RateEstimate.initial(INSTANCES).after_refusal()
    rates = [(guess := guess.after_success()).per_second for _ in range(5)]
    assert rates == [150, 175, 200, 225, 250]


def test_what_was_in_the_bucket_says_nothing_about_the_rate():
    bucket = TokenQueue(INSTANCES, FakeClock(), adaptive=True)
    for _ in range(4):
        bucket.record_success(bucket.join_queue(250))
    assert bucket.per_second == 250
    bucket.record_success(bucket.join_queue(250))
    assert bucket.per_second > 250


def test_several_refusals_at_once_lower_the_rate_once():
    bucket = TokenQueue(INSTANCES, FakeClock(), adaptive=True)
    places = [bucket.join_queue(250) for _ in range(4)]
    for place in places:
        bucket.record_refusal(place)
    assert bucket.per_second == 125


# The queue of calls


def test_tokens_that_ec2_did_not_take_go_to_the_next_in_line():
    clock = FakeClock()
    bucket = TokenQueue(Rate(10, 0.01), clock)
    first, second = bucket.join_queue(10), bucket.join_queue(10)
    assert bucket.wait(second) > 900
    bucket.record_refusal(first)
    assert 0 < bucket.wait(second) <= 1
    clock.advance(1)
    assert bucket.wait(second) == 0


def test_a_call_larger_than_its_bucket_waits_for_a_full_one_and_no_longer():
    """Queue two calls for 4,000 instances at a bucket of 1,000.

    EC2 takes a call of any size once its bucket is full.
    """
    bucket = TokenQueue(Rate(1000, 2), FakeClock())
    assert bucket.wait(bucket.join_queue(4000)) == 0
    assert bucket.wait(bucket.join_queue(4000)) <= 501


def test_a_bucket_holds_no_more_than_its_burst_however_often_it_gets_tokens_back():
    clock = FakeClock()
    bucket = TokenQueue(Rate(10, 1), clock)
    for _ in range(5):
        bucket.record_refusal(bucket.join_queue(10))
        clock.advance(60)
    assert bucket.wait(bucket.join_queue(10)) == 0
    assert bucket.wait(bucket.join_queue(5)) >= 5


def test_the_line_waits_longer_each_time_that_ec2_refuses_the_known_rate_in_a_row():
    clock = FakeClock()
    bucket = TokenQueue(Rate(10, 100), clock)
    pauses = []
    for _ in range(4):
        place = bucket.join_queue(1)
        clock.advance(bucket.wait(place))
        bucket.record_refusal(place)
        pauses.append(bucket.wait(bucket.join_queue(1)))
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6], rel=0.001)


def test_a_grant_ends_the_growing_of_pauses():
    clock = FakeClock(0.0)
    bucket = TokenQueue(Rate(10, 100), clock)
    bucket.record_refusal(bucket.join_queue(1))
    clock.advance(1)
    bucket.record_success(bucket.join_queue(1))
    bucket.record_refusal(bucket.join_queue(1))
    assert bucket.wait(bucket.join_queue(1)) == pytest.approx(0.2)


def test_a_full_bucket_begins_to_fill_when_ec2_has_the_call():
    clock = FakeClock(0.0)
    bucket = TokenQueue(Rate(10, 10), clock)
    first, second = bucket.join_queue(10), bucket.join_queue(10)
    assert bucket.wait(first) == 0
    assert bucket.wait(second) == pytest.approx(1.2)


# All of resume, one launch call after another


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Rate:
    rate = (RAISED.burst, RAISED.per_second)
    monkeypatch.setitem(request_rates.INSTANCES, "RunInstances", rate)
    return RAISED


def far(folder: Path, *, told: Rate | None, patience: float = 500.0, timeout: int = 2100) -> Bench:
    """Make a bench with a slow network and a throttling EC2.

    The rate limiter paces its calls. `told` is the configured rate, or None.
    """
    slurm = {"bin": "/usr/bin", "resume_timeout": timeout}
    bench = Bench(folder, nodes="gpu-[0001-4000]", slurm=slurm)
    bench.slurm.resume_timeout = timeout
    bench.cloud.throttle.enabled = True
    launch = bench.cloud.launch

    def across(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        bench.clock.advance(HOP)
        try:
            return launch(request, intend)
        finally:
            bench.clock.advance(HOP)

    bench.cloud.launch = across  # type: ignore[method-assign]
    paced = RateLimitedCloud(
        bench.cloud,
        bench.clock,
        patience=patience,
        launch_until=bench.clock.monotonic() + timeout * CAPACITY_SHARE,
        instances=told,
    )
    bench.engine = replace(bench.engine, cloud=paced)
    return bench


def resumed(bench: Bench, *sizes: int) -> float:
    """Run resume for jobs of these sizes; return its seconds."""
    asks: list[JobRequest] = []
    at = 0
    for job, size in enumerate(sizes, start=100):
        asks.append(bench.slurm.start(job, G[at : at + size]))
        at += size
    began = bench.clock.monotonic()
    resume(bench.engine, asks)
    return bench.clock.monotonic() - began


def refusals(bench: Bench) -> int:
    return (
        len(bench.events(LogEvent.LAUNCH_FAILED))
        + bench.cloud.calls.count("launch")
        - len(bench.cloud.requests)
    )


LOADS = {"1x4000": [4000], "500x8": [8] * 500, "1000x4": [4] * 1000}


@pytest.mark.parametrize("load", LOADS)
def test_four_thousand_nodes_are_launched_near_to_ec2s_floor_and_without_a_refusal(
    load: str, account: Rate, tmp_path: Path
):
    bench = far(tmp_path, told=account)
    took = resumed(bench, *LOADS[load])
    assert len(bench.cloud.live()) == 4000
    assert took <= NEAR * floor(4000, account)
    assert refusals(bench) == 0


@pytest.mark.parametrize("load", LOADS)
def test_four_thousand_nodes_are_launched_near_to_a_floor_that_is_not_configured(
    load: str, account: Rate, tmp_path: Path
):
    bench = far(tmp_path, told=None)
    took = resumed(bench, *LOADS[load])
    assert len(bench.cloud.live()) == 4000
    assert took <= NEAR * floor(4000, account)
    assert refusals(bench) <= 8


@pytest.mark.parametrize("load", LOADS)
def test_at_ec2s_published_rate_resume_wastes_no_tokens(load: str, tmp_path: Path):
    """Launch 4,000 nodes with a ResumeTimeout of 900 s.

    At the published rate ResumeTimeout ends before all are launched. The remaining jobs are given
    back.
    """
    bench = far(tmp_path, told=None, timeout=900, patience=225)
    launch, given = bench.cloud.launch, []

    def counted(request: LaunchRequest, intend: Callable[[], None]) -> LaunchResult:
        launched = launch(request, intend)
        given.append((bench.clock.monotonic(), len(launched.instances)))
        return launched

    bench.cloud.launch = counted  # type: ignore[method-assign]
    began = bench.clock.monotonic()
    resumed(bench, *LOADS[load])
    most = INSTANCES.burst + INSTANCES.per_second * (given[-1][0] - began)
    assert sum(count for _, count in given) >= most - batching.MAX_SHARED_BATCH
    last_calls = WORKERS  # at half of ResumeTimeout each worker's call goes without tokens
    assert refusals(bench) <= 40 + last_calls


def test_calls_keep_to_the_configured_rate(tmp_path: Path):
    """Launch 2,000 instances with a burst of 1,000.

    The first 1,000 start at once. The others start as their tokens come back, 2 a second.
    """
    bench = far(tmp_path, told=INSTANCES, timeout=3600)
    took = resumed(bench, *[500] * 4)
    assert len(bench.cloud.live()) == 2000
    assert 500 <= took <= 505
    assert refusals(bench) == 0


@pytest.mark.parametrize("size", [3, 250, 1000])
def test_a_job_that_ec2_throttles_without_end_is_given_back_at_half_of_resume_timeout(
    size: int, tmp_path: Path
):
    bench = Bench(tmp_path, nodes="gpu-[0001-4000]")
    paced = at_ec2s_pace(bench.cloud, bench.config, bench.clock)
    bench.engine = replace(bench.engine, cloud=paced)
    bench.cloud.next_errors = [error_codes.error(THROTTLED, "slow down")] * 1000
    assert resumed(bench, size) <= bench.config.resume_timeout * CAPACITY_SHARE
    assert bench.cloud.live() == []
    assert bench.slurm.state[G[0]].reason == f"toolkit: throttled ({THROTTLED})"


def test_a_call_that_waits_looks_again_twice_a_second(tmp_path: Path):
    """Launch 10 instances and then 250, at a burst of 10.

    The refusal of another call may have moved the waiting call up.
    """
    bench = far(tmp_path, told=Rate(10, 1))
    resumed(bench, 10, 250)
    assert sum(bench.clock.slept) >= 9
    assert max(bench.clock.slept) <= 0.5


def test_a_refused_launch_is_not_charged_twice(tmp_path: Path):
    bench = far(tmp_path, told=Rate(4, 0.01))
    bench.cloud.next_errors = [error_codes.error(THROTTLED, "slow down")]
    assert resumed(bench, 4) <= 5
    assert len(bench.cloud.live()) == 4


def test_no_call_waits_longer_than_its_limit(tmp_path: Path):
    """Launch 300 instances at a configured rate that is far too low.

    The AWS account may have a higher rate than the configured one. So the call is made in the end,
    and EC2 judges it.
    """
    bench = far(tmp_path, told=Rate(10, 0.01), patience=60)
    assert resumed(bench, 10, 300) <= 70
    assert len(bench.cloud.live()) == 310
