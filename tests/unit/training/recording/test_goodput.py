"""Every second and every dollar of a run is in one part."""

import json
from decimal import Decimal

import pytest

from toolkit.training.recording import goodput
from toolkit.training.recording.goodput import split
from toolkit.training.recording.throughput import Throughput
from toolkit.training.run_folder import pauses as pauses_file
from toolkit.training.run_folder.attempts import AttemptRecord
from toolkit.training.run_folder.pauses import Pause
from toolkit.training.run_folder.steps import History, Resumption, StepRecord


def attempt(number, started, ended, *, price=None, cause="lost"):
    return AttemptRecord(
        attempt=number,
        job_id="7",
        restart_count=number,
        started_at=started,
        ended_at=ended,
        seconds=None,
        cause=cause,
        step_start=None,
        step_end=None,
        world_size=1,
        nodes=("n1",),
        instances=({"price": price},) * 2 if price else (),
        cost_usd=None,
    )


def step(number, at, attempt=0):
    return StepRecord(attempt, number, 0, number, number + 1, 1, 0, at)


# The first attempt starts at 0 and begins at 10 (4 s of it loading). Its steps end at 12, 16, 18.
# A save of 1 s is in the second step. The second attempt starts at 40, at step 1, and ends at 60.
ATTEMPTS = (attempt(0, 0.0, 18.0), attempt(1, 40.0, 60.0, cause="finished"))
HISTORY = History(
    steps=(step(0, 12.0), step(1, 52.0, 1), step(2, 54.0, 1)),
    repeated=(step(1, 16.0), step(2, 18.0)),
    resumptions=(Resumption(0, 0, 10.0), Resumption(1, 1, 50.0)),
    torn_lines=0,
)
PAUSES = (
    Pause(0, "restore", 9.5, 4.0, 0),
    Pause(0, "save", 13.5, 1.0, 1),
    Pause(1, "restore", 49.0, 3.0, 1),
    Pause(1, "save", 57.0, 2.0, 3),
)


def test_the_parts_of_two_attempts_are_what_happened_in_them():
    found = split(ATTEMPTS, HISTORY, PAUSES, now=100.0)
    assert found.seconds == {
        "useful": 2.0 + 4.0,
        "save": 1.0 + 2.0,
        "restore": 4.0 + 3.0,
        "lost": 3.0 + 2.0,
        "startup": 6.0 + 7.0,
        "other": 4.0,
    }
    assert found.waiting == 22.0
    assert sum(found.seconds.values()) == 18.0 + 20.0
    assert found.goodput == pytest.approx(6 / 38)
    assert found.effective == pytest.approx(6 / 60)
    assert found.cost_usd == {}


def test_the_parts_cost_what_the_instances_cost_for_so_long():
    found = split((attempt(0, 0.0, 3600.0, price="0.36"),), HISTORY, PAUSES, now=9999.0)
    assert sum(Decimal(usd) for usd in found.cost_usd.values()) == Decimal("0.72")
    assert found.metrics()["toolkit.cost_usd_restore"] == pytest.approx(0.0008)


def test_an_attempt_that_never_trained_was_all_start_up():
    found = split((attempt(0, 5.0, 9.0),), History((), (), (), 0), (), now=10.0)
    assert found.seconds["startup"] == 4.0
    assert found.goodput == 0.0


def test_an_attempt_that_still_runs_counts_up_to_now():
    found = split((attempt(0, 0.0, None),), HISTORY, PAUSES, now=20.0)
    assert found.seconds["other"] == 2.0


def test_clocks_that_disagree_never_make_time_negative():
    backwards = History((step(0, 5.0),), (), (Resumption(0, 0, 10.0),), 0)
    pauses = (Pause(0, "save", 5.0, 99.0, 1), Pause(0, "restore", 9.0, 99.0, 0))
    found = split((attempt(0, 0.0, 18.0),), backwards, pauses, now=20.0)
    assert min(found.seconds.values()) >= 0
    assert sum(found.seconds.values()) == 18.0


def test_a_run_without_attempts_has_no_ratio():
    found = split((), History((), (), (), 0), (), now=1.0)
    assert found.goodput is None
    assert "toolkit.goodput" not in found.metrics()


def test_a_pause_that_a_kill_cut_short_is_left_out(tmp_path):
    path = tmp_path / "times.jsonl"
    pauses_file.append(path, PAUSES[0])
    with path.open("a") as stream:
        stream.write('{"attempt": 1, "kind": "sa')
    assert pauses_file.read(path) == PAUSES[:1]


def test_the_command_prints_the_split_and_says_when_there_is_no_run(tmp_path, capsys):
    assert goodput.main([str(tmp_path)]) == 2
    (tmp_path / "attempts.jsonl").write_text("")
    assert goodput.main([str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["attempts"] == 0


def test_throughput_counts_no_pauses_and_not_what_came_before_the_first_step():
    speed = Throughput(flops_per_sample=2e9, peak_flops=1e12, window=10.0)
    assert speed.step(100.0, 64) == {}
    assert speed.step(105.0, 64) == {}
    speed.pause(6.0)
    assert speed.step(111.0, 64) == {}
    assert speed.step(116.0, 64) == {
        "toolkit.samples_per_second": pytest.approx(19.2),
        "toolkit.mfu": pytest.approx(19.2 * 2e9 / 1e12),
    }
    assert speed.step(117.0, 64) == {}


def test_without_a_peak_there_is_no_mfu():
    speed = Throughput(flops_per_sample=2e9, peak_flops=None, window=1.0)
    speed.step(0.0, 1)
    assert speed.step(2.0, 4) == {"toolkit.samples_per_second": 2.0}
