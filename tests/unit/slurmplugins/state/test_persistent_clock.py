"""Time that is written down: it never goes back, and nobody can set it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slurmplugins.errors import Capacity, CloudError
from slurmplugins.model import hostlist
from slurmplugins.model.launch import LaunchRequest
from slurmplugins.power_save.resume import resume
from slurmplugins.reconciler.run import run_pass
from slurmplugins.reconciler.snapshot import Snapshot
from slurmplugins.state.journal import AHEAD_SECONDS, SETTLE_SECONDS, Journal
from slurmplugins.state.journal_view import JournalView
from slurmplugins.state.persistent_clock import KEEP_EVERY, Steady
from slurmplugins.state.queue_time import Waits
from slurmplugins.state.unavailable_offerings import CAPACITY_SECONDS, OfferingMemory
from tests.fakes.clock import START, FakeClock
from tests.fakes.engine import SPOT_A, Bench

if TYPE_CHECKING:
    from pathlib import Path

G = hostlist.expand("gpu-[001-008]")
DAY = 24 * 3600.0


@pytest.mark.parametrize("set_by", [-DAY, -60.0, 60.0, DAY])
def test_while_the_head_stays_up_it_goes_with_the_monotonic_clock(tmp_path: Path, set_by: float):
    clock = FakeClock()
    began = Steady(tmp_path, clock).now()
    clock.jump(set_by)
    clock.advance(30)
    assert Steady(tmp_path, clock).now() == began + 30


@pytest.mark.parametrize("set_by", [-DAY, -60.0, 0.0, DAY])
def test_over_a_boot_it_goes_on_where_it_was_at_the_latest_whatever_the_clock(
    tmp_path: Path, set_by: float
):
    clock = FakeClock()
    began = Steady(tmp_path, clock)
    clock.advance(10 * KEEP_EVERY)
    began.keep()
    booted = FakeClock(now=5.0, boot="2")
    booted.jump(START - 5.0 + 10 * KEEP_EVERY + set_by)
    again = Steady(tmp_path, booted)
    assert again.now() == began.now() + KEEP_EVERY
    booted.advance(30)
    assert Steady(tmp_path, booted).now() == began.now() + KEEP_EVERY + 30


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b"\xff", b"[" * 200_000, b'{"boot": "1", "offset": NaN, "last": 1}',
     b'{"boot": "1", "offset": 1e999, "last": 1}', b'{"boot": "1", "offset": 1e300, "last": 1e300}',
     b'{"boot": ["1"], "offset": "0", "last": null}'],
)  # fmt: skip
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: bytes):
    (tmp_path / "time.json").write_bytes(text)
    assert Steady(tmp_path, FakeClock()).now() == START


def test_where_it_can_not_be_written_it_begins_at_the_wall_clock(tmp_path: Path):
    steady = Steady(tmp_path / "absent", FakeClock())
    assert steady.now() == START
    steady.keep()


def test_people_are_told_moments_by_the_clock_as_it_is_now(tmp_path: Path):
    clock = FakeClock()
    steady = Steady(tmp_path, clock)
    due = steady.now() + 60
    clock.jump(DAY)
    assert steady.wall(due) == clock.now() + 60


def booted(clock: FakeClock, set_by: float) -> FakeClock:
    """The same moment, after a boot, by a clock that is set."""
    other = FakeClock(clock.monotonic(), boot="2")
    other.jump(set_by)
    return other


@pytest.mark.parametrize("set_by", [-DAY, -3600.0])
def test_a_doubt_of_before_a_boot_ends_in_time_though_the_clock_is_set_back(
    bench: Bench, set_by: float
):
    request = LaunchRequest(
        "a1", "demo", "gpu", "spot", "demo-gpu", "", bench.config.pools["gpu"].offerings[0], G[:2]
    )
    bench.engine.journal.intend(request, "0" * 16, [7])
    clock = booted(bench.clock, set_by)
    journal = Journal(bench.engine.state, clock)
    assert journal.claims().doubtful == set(request.nodes)
    clock.advance(SETTLE_SECONDS + 1)
    assert journal.claims().doubtful == frozenset()


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("set_by", [-200.0, -DAY])
def test_a_boot_with_the_clock_set_back_leaves_instances_their_time_to_boot(
    bench: Bench, set_by: float, lost: bool
):
    """Also where the file of the steady clock is lost with it."""
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    if lost:
        (bench.engine.state / "time.json").unlink()
    bench.clock.advance(10)
    claims = Journal(bench.engine.state, booted(bench.clock, set_by)).claims()
    for machine in bench.cloud.live():
        assert claims.age(machine, bench.clock.now()) <= 10 + KEEP_EVERY


def test_a_doubt_outlives_a_boot_that_lost_the_file_of_the_steady_clock(bench: Bench):
    request = LaunchRequest(
        "a1", "demo", "gpu", "spot", "demo-gpu", "", bench.config.pools["gpu"].offerings[0], G[:2]
    )
    bench.engine.journal.intend(request, "0" * 16, [7])
    (bench.engine.state / "time.json").unlink()
    clock = booted(bench.clock, -AHEAD_SECONDS / 2)
    assert Journal(bench.engine.state, clock).claims().doubtful == set(request.nodes)
    clock.advance(AHEAD_SECONDS / 2 + SETTLE_SECONDS + 1)
    assert Journal(bench.engine.state, clock).claims().doubtful == frozenset()


def test_what_the_steady_clock_shows_is_kept_though_ec2_can_not_be_listed(bench: Bench):
    run_pass(bench.engine)
    bench.cloud.unreadable = True
    bench.clock.advance(DAY)
    tried = bench.engine.steady.now()
    with pytest.raises(CloudError):
        run_pass(bench.engine)
    assert Steady(bench.engine.state, booted(bench.clock, -DAY)).now() >= tried


@pytest.mark.parametrize("ahead", [90.0, DAY])
def test_a_setback_ends_in_time_though_the_clock_was_ahead(bench: Bench, ahead: float):
    offering = bench.config.pools["gpu"].offerings[0]
    bench.clock.jump(ahead)
    bench.engine.memory.remember(offering, Capacity("none", code="x"))
    clock = booted(bench.clock, 0.0)
    memory = OfferingMemory(bench.engine.state / "offerings.json", clock)
    assert set(memory.setbacks()) == {SPOT_A}
    clock.advance(CAPACITY_SECONDS + 1)
    assert memory.setbacks() == {}


def test_a_wait_goes_on_though_the_clock_is_set_back(tmp_path: Path):
    clock = FakeClock()
    waits = Waits(tmp_path / "waits.json", clock)
    assert waits.of([7], {7: START - 100}) == {7: 100.0}
    clock.jump(-DAY)
    clock.advance(50)
    assert waits.of([7], {7: clock.now()}) == {7: 150.0}


@pytest.mark.parametrize("set_by", [-DAY, DAY])
def test_an_instance_is_as_old_as_the_journal_says_whatever_the_clock(bench: Bench, set_by: float):
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    (machine,) = bench.cloud.live()
    bench.clock.jump(set_by)
    bench.clock.advance(30)
    claims = bench.engine.journal.claims()
    world = Snapshot(bench.config, (machine,), {}, claims, bench.clock.now())
    assert 30 <= world.age(machine) < 40
    unknown = Snapshot(bench.config, (machine,), {}, JournalView(), machine.launched_at + 5)
    assert unknown.age(machine) == 5


def test_the_file_can_be_read_by_each_program_whoever_wrote_it(tmp_path: Path):
    Steady(tmp_path, FakeClock()).now()
    path = tmp_path / "time.json"
    assert path.stat().st_mode & 0o777 == 0o644
    assert json.loads(path.read_text()).keys() == {"boot", "offset", "last"}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
