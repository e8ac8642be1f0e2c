"""Stops in the instance ledger: EC2 moves the launch time at each start, and bills no stop."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slurmplugins.model.instance import Instance, InstanceState, Lifecycle
from slurmplugins.reconciler import instance_ledger
from slurmplugins.reconciler.instance_ledger import LedgerEntry, from_json, to_json
from slurmplugins.reconciler.pass_state import LastPass
from slurmplugins.reconciler.run import run_pass
from tests.fakes.engine import Bench, burst

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.reconciler.instance_ledger import Stop

HEAD = Instance(
    id="i-head",
    state=InstanceState.RUNNING,
    role="head",
    node=None,
    pool="",
    partition="",
    attempt="",
    type="m7i.large",
    zone="us-east-1a",
    lifecycle=Lifecycle.ON_DEMAND,
    address="10.42.1.10",
    price="0.1008",
    launched_at=1000.0,
)
STOPPED = replace(HEAD, state=InstanceState.STOPPED)
HOUR = 3600.0


def after(*sights: tuple[float, Instance], last_pass_at: float = 0.0) -> LedgerEntry:
    """Return the entry after passes, each at a time with EC2's answer."""
    entries: dict[str, LedgerEntry] = {}
    for now, instance in sights:
        entries = instance_ledger.update(entries, [instance], {}, now, last_pass_at)
        last_pass_at = now
    return entries[HEAD.id]


def test_a_head_that_is_started_again_had_stopped_after_its_last_pass():
    restarted = replace(HEAD, launched_at=50_000.0)
    entry = after((1060, HEAD), (9000, HEAD), (50_060, restarted), (50_075, restarted))
    assert (entry.launched_at, entry.running_at) == (1000, 1060)
    assert entry.stops == ((9000, 50_000),)


def test_a_start_that_an_older_head_saw_makes_no_stop_up():
    restarted = replace(HEAD, launched_at=50_000.0)
    entries = {HEAD.id: after((1060, HEAD))}
    entries = instance_ledger.update(entries, [restarted], {}, 60_000, last_pass_at=59_985)
    assert (entries[HEAD.id].launched_at, entries[HEAD.id].stops) == (1000, ())


def test_each_stop_is_kept():
    first, second = replace(HEAD, launched_at=50_000.0), replace(HEAD, launched_at=90_000.0)
    entry = after((1060, HEAD), (50_060, first), (60_000, first), (90_060, second))
    assert entry.stops == ((1060, 50_000), (60_000, 90_000))


def test_a_pass_that_sees_an_instance_stopped_records_its_stop():
    assert after((1060, HEAD), (2000, STOPPED), (2015, STOPPED)).stops == ((2000, None),)
    started = replace(HEAD, state=InstanceState.PENDING, launched_at=5000.0)
    entry = after((1060, HEAD), (2000, STOPPED), (5001, started), (5015, started))
    assert entry.stops == ((2000, 5000),)


@pytest.mark.parametrize(
    ("by_ec2", "recorded"), [(1500.0, 1500.0), (None, 9000.0), (900.0, 9000.0), (9500.0, 9000.0)]
)
def test_a_stop_began_when_ec2_says_unless_that_is_before_the_launch_or_to_come(by_ec2, recorded):
    entry = after((1060, HEAD), (9000, replace(STOPPED, stopped_at=by_ec2)))
    assert entry.stops == ((recorded, None),)


def test_an_answer_with_an_older_launch_time_is_no_start():
    restarted = replace(HEAD, launched_at=50_000.0)
    entry = after((1060, HEAD), (50_060, restarted), (50_075, HEAD), (50_090, restarted))
    assert len(entry.stops) == 1


def test_an_instance_that_is_terminated_while_it_is_stopped_has_no_new_start():
    gone = replace(STOPPED, state=InstanceState.TERMINATED, ended_at=7000.0)
    entry = after((1060, HEAD), (2000, STOPPED), (7010, gone))
    assert (entry.stops, entry.ended_at) == (((2000, None),), 7000)


def test_a_first_answer_without_a_launch_time_is_completed():
    entry = after((1060, replace(HEAD, launched_at=0.0)), (1075, HEAD))
    assert (entry.launched_at, entry.stops) == (1000, ())


@pytest.mark.parametrize("stops", [(), ((2000.0, None),), ((1.5, 3), (9.0, 12.0))])
def test_stops_go_to_the_bucket_and_come_back(stops: tuple[Stop, ...]):
    entry = replace(after((1060, HEAD)), stops=stops)
    assert from_json(json.loads(json.dumps(to_json(entry)))) == entry
    assert ("stops" in to_json(entry)) == bool(stops)


@pytest.mark.parametrize(
    "stops",
    [3, "ab", [3], [[1]], [[1, 2, 3]], [["1", None]], [[None, 1]], [[1, 1e99]], [[True, 2]]],
)
def test_an_entry_with_damaged_stops_is_none(stops: object):
    assert from_json(to_json(after((1060, HEAD))) | {"stops": stops}) is None


def test_a_lost_state_keeps_the_first_launch_of_the_bucket():
    stored = replace(after((1060, HEAD)), stops=((2000.0, 3000.0),))
    entry = instance_ledger.merge(after((9000, replace(HEAD, launched_at=8000.0))), stored)
    assert (entry.launched_at, entry.running_at, entry.stops) == (1000, 1060, ((2000, 3000),))


def test_passes_of_a_head_that_was_away_write_its_stop_once(tmp_path: Path):
    bench = Bench(tmp_path, pools=burst("gpu-[001-002]")["pools"])
    launched_at = bench.clock.now() - 60
    bench.cloud.add(replace(HEAD, launched_at=launched_at))
    run_pass(bench.engine)
    last_pass_at = LastPass.load(bench.engine.state).at
    bench.clock.advance(10 * HOUR)
    bench.cloud.add(replace(HEAD, launched_at=bench.clock.now() - 90))
    for _ in range(4):
        run_pass(bench.engine)
        bench.clock.advance(15)
    entry = bench.store.objects[instance_ledger.object_key(HEAD.id)]
    assert [list(stop) for stop in entry["stops"]] == [
        [last_pass_at, pytest.approx(last_pass_at + 10 * HOUR - 90, abs=1)]
    ]
    assert entry["launched_at"] == launched_at
    assert bench.store.puts == 2
