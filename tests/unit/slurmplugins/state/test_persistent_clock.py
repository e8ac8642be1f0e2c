"""The persistent clock: it never goes back, and nobody can set it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from slurmplugins.errors import CloudError, NoCapacity
from slurmplugins.model import hostlist
from slurmplugins.model.launch import LaunchRequest
from slurmplugins.power_save.resume import resume
from slurmplugins.reconciler.run import run_pass
from slurmplugins.reconciler.snapshot import Snapshot
from slurmplugins.state.journal import AHEAD_SECONDS, LISTING_DELAY_SECONDS, Journal
from slurmplugins.state.journal_view import JournalView
from slurmplugins.state.persistent_clock import SAVE_EVERY, PersistentClock
from slurmplugins.state.queue_time import QueueTimes
from slurmplugins.state.unavailable_offerings import CAPACITY_SECONDS, UnavailableOfferings
from tests.fakes.clock import START, FakeClock
from tests.fakes.engine import SPOT_A, Bench

if TYPE_CHECKING:
    from pathlib import Path

G = hostlist.expand("gpu-[001-008]")
DAY = 24 * 3600.0


@pytest.mark.parametrize("set_by", [-DAY, -60.0, 60.0, DAY])
def test_while_the_head_stays_up_it_goes_with_the_monotonic_clock(tmp_path: Path, set_by: float):
    clock = FakeClock()
    began = PersistentClock(tmp_path, clock).now()
    clock.jump(set_by)
    clock.advance(30)
    assert PersistentClock(tmp_path, clock).now() == began + 30


@pytest.mark.parametrize("set_by", [-DAY, -60.0, 0.0, DAY])
def test_over_a_boot_it_goes_on_where_it_was_at_the_latest_whatever_the_clock(
    tmp_path: Path, set_by: float
):
    clock = FakeClock()
    began = PersistentClock(tmp_path, clock)
    clock.advance(10 * SAVE_EVERY)
    began.save_if_due()
    booted = FakeClock(now=5.0, boot="2")
    booted.jump(START - 5.0 + 10 * SAVE_EVERY + set_by)
    again = PersistentClock(tmp_path, booted)
    assert again.now() == began.now() + SAVE_EVERY
    booted.advance(30)
    assert PersistentClock(tmp_path, booted).now() == began.now() + SAVE_EVERY + 30


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b"\xff", b"[" * 200_000, b'{"boot": "1", "offset": NaN, "last": 1}',
     b'{"boot": "1", "offset": 1e999, "last": 1}', b'{"boot": "1", "offset": 1e300, "last": 1e300}',
     b'{"boot": ["1"], "offset": "0", "last": null}'],
)  # fmt: skip
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: bytes):
    (tmp_path / "time.json").write_bytes(text)
    assert PersistentClock(tmp_path, FakeClock()).now() == START


def test_where_it_can_not_be_written_it_begins_at_the_wall_clock(tmp_path: Path):
    steady = PersistentClock(tmp_path / "absent", FakeClock())
    assert steady.now() == START
    steady.save_if_due()


def test_people_are_told_moments_by_the_clock_as_it_is_now(tmp_path: Path):
    clock = FakeClock()
    steady = PersistentClock(tmp_path, clock)
    due = steady.now() + 60
    clock.jump(DAY)
    assert steady.wall(due) == clock.now() + 60


def booted(clock: FakeClock, set_by: float) -> FakeClock:
    """Make a clock of the same moment after a boot.

    Its wall clock is off by `set_by` seconds.
    """
    other = FakeClock(clock.monotonic(), boot="2")
    other.jump(set_by)
    return other


@pytest.mark.parametrize("set_by", [-DAY, -3600.0])
def test_an_unresolved_launch_of_before_a_boot_expires_in_time_though_the_clock_is_set_back(
    bench: Bench, set_by: float
):
    request = LaunchRequest(
        "a1", "demo", "gpu", "spot", "demo-gpu", "", bench.config.pools["gpu"].offerings[0], G[:2]
    )
    bench.engine.journal.record_call(request, "0" * 16, [7])
    clock = booted(bench.clock, set_by)
    journal = Journal(bench.engine.state, clock)
    assert journal.view().unresolved_nodes == set(request.nodes)
    clock.advance(LISTING_DELAY_SECONDS + 1)
    assert journal.view().unresolved_nodes == frozenset()


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("set_by", [-200.0, -DAY])
def test_a_boot_with_the_clock_set_back_leaves_instances_their_time_to_boot(
    bench: Bench, set_by: float, lost: bool
):
    """Boot the head node with its clock set back.

    The file of the persistent clock may be lost with it.
    """
    resume(bench.engine, [bench.slurm.start(7, G[:2])])
    if lost:
        (bench.engine.state / "time.json").unlink()
    bench.clock.advance(10)
    claims = Journal(bench.engine.state, booted(bench.clock, set_by)).view()
    for machine in bench.cloud.live():
        assert claims.age(machine, bench.clock.now()) <= 10 + SAVE_EVERY


def test_an_unresolved_launch_outlives_a_boot_that_lost_the_persistent_clocks_file(bench: Bench):
    request = LaunchRequest(
        "a1", "demo", "gpu", "spot", "demo-gpu", "", bench.config.pools["gpu"].offerings[0], G[:2]
    )
    bench.engine.journal.record_call(request, "0" * 16, [7])
    (bench.engine.state / "time.json").unlink()
    clock = booted(bench.clock, -AHEAD_SECONDS / 2)
    assert Journal(bench.engine.state, clock).view().unresolved_nodes == set(request.nodes)
    clock.advance(AHEAD_SECONDS / 2 + LISTING_DELAY_SECONDS + 1)
    assert Journal(bench.engine.state, clock).view().unresolved_nodes == frozenset()


def test_what_the_persistent_clock_shows_is_kept_though_ec2_can_not_be_listed(bench: Bench):
    run_pass(bench.engine)
    bench.cloud.unreadable = True
    bench.clock.advance(DAY)
    tried = bench.engine.persistent_clock.now()
    with pytest.raises(CloudError):
        run_pass(bench.engine)
    assert PersistentClock(bench.engine.state, booted(bench.clock, -DAY)).now() >= tried


@pytest.mark.parametrize("ahead", [90.0, DAY])
def test_an_unavailable_offering_expires_in_time_though_the_clock_was_ahead(
    bench: Bench, ahead: float
):
    offering = bench.config.pools["gpu"].offerings[0]
    bench.clock.jump(ahead)
    bench.engine.unavailable_offerings.mark_unavailable(offering, NoCapacity("none", code="x"))
    clock = booted(bench.clock, 0.0)
    memory = UnavailableOfferings(bench.engine.state / "offerings.json", clock)
    assert set(memory.entries()) == {SPOT_A}
    clock.advance(CAPACITY_SECONDS + 1)
    assert memory.entries() == {}


def test_a_wait_goes_on_though_the_clock_is_set_back(tmp_path: Path):
    clock = FakeClock()
    waits = QueueTimes(tmp_path / "waits.json", clock)
    assert waits.seconds_of([7], {7: START - 100}) == {7: 100.0}
    clock.jump(-DAY)
    clock.advance(50)
    assert waits.seconds_of([7], {7: clock.now()}) == {7: 150.0}


@pytest.mark.parametrize("set_by", [-DAY, DAY])
def test_an_instance_is_as_old_as_the_journal_says_whatever_the_clock(bench: Bench, set_by: float):
    resume(bench.engine, [bench.slurm.start(7, G[:1])])
    (machine,) = bench.cloud.live()
    bench.clock.jump(set_by)
    bench.clock.advance(30)
    claims = bench.engine.journal.view()
    world = Snapshot(bench.config, (machine,), {}, claims, bench.clock.now())
    assert 30 <= world.age(machine) < 40
    unknown = Snapshot(bench.config, (machine,), {}, JournalView(), machine.launched_at + 5)
    assert unknown.age(machine) == 5


def test_the_file_can_be_read_by_each_program_whoever_wrote_it(tmp_path: Path):
    PersistentClock(tmp_path, FakeClock()).now()
    path = tmp_path / "time.json"
    assert path.stat().st_mode & 0o777 == 0o644
    assert json.loads(path.read_text()).keys() == {"boot", "offset", "last"}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)
