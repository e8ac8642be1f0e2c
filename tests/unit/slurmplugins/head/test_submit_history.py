"""Waits and interruptions that sbatch tells: each is counted once, for a month."""

import pytest

from slurmplugins.head import submit_history
from slurmplugins.head.submit_history import SubmitHistory, updated, window
from slurmplugins.reconciler.instance_ledger import LedgerEntry

NOW = 1_790_000_000
HOUR = 3600
DAY = 24 * HOUR


def row(end, wait=300, **changes):
    """Return a job of a minute, as sacct has it."""
    start = end - 60
    return {
        "Partition": "spot",
        "State": "COMPLETED",
        "Submit": str(start - wait),
        "Start": str(start),
        "End": str(end),
        "Restarts": "0",
        **changes,
    }


def entry(launched, ended=None, cause=None, **changes):
    given = {
        "instance_id": "i-1", "node": "gpu-001", "pool": "gpu", "partition": "spot",
        "attempt": "a", "type": "g5.xlarge", "zone": "us-east-1a", "lifecycle": "spot",
        "launched_at": launched, "price": "0.40", "ended_at": ended, "end_cause": cause, **changes,
    }  # fmt: skip
    return LedgerEntry(**given)


def of(rows=(), entries=(), span=(NOW - HOUR, NOW), history=None):
    return updated(history or SubmitHistory(), rows, entries, span)


def test_a_wait_is_the_median_of_the_jobs_of_a_partition():
    rows = [row(NOW - 9, wait) for wait in (10, 300, 400)] + [row(NOW - 9, 9, Partition="any")]
    history = of(rows)
    assert history.wait("spot") == {"seconds": 300, "count": 3}
    assert history.wait("any") == {"seconds": 9, "count": 1}
    assert history.wait("other") is None


@pytest.mark.parametrize(
    "changes",
    [
        {"Restarts": "1"},
        {"State": "RUNNING", "End": "Unknown"},
        {"State": "NODE_FAIL"},
        {"State": "CANCELLED by 2001"},
        {"Submit": "Unknown"},
        {"Start": "None"},
        {"Submit": str(NOW)},
        {"End": str(NOW - HOUR - 1)},
        {"End": str(NOW)},
        {"Partition": ""},
    ],
    ids=str,
)
def test_a_job_that_does_not_tell_a_wait_is_left_out(changes):
    assert of([{**row(NOW - 9), **changes}]) == SubmitHistory(until=NOW)


def test_an_older_slurm_without_restarts_is_read_too():
    old = row(NOW - 9)
    del old["Restarts"]
    assert of([old]).wait("spot") == {"seconds": 300, "count": 1}


def test_an_interruption_is_held_against_the_hours_of_its_type():
    lives = [
        entry(NOW - 2 * HOUR),
        entry(NOW - HOUR // 2, NOW - 60, "interruption"),
        entry(NOW - HOUR // 2, NOW - 60, "notice"),
        entry(NOW - HOUR // 2, NOW - 60, "suspend"),
    ]
    assert of(entries=lives).interruptions("g5.xlarge") == {"count": 2, "hours": 2.5}
    assert of(entries=lives).interruptions("p5.48xlarge") is None


@pytest.mark.parametrize(
    "life",
    [
        entry(NOW - HOUR, lifecycle="on-demand"),
        entry(NOW - HOUR, NOW, "boot-failed"),
        entry(NOW - 3 * HOUR, NOW - 2 * HOUR, "interruption"),
    ],
    ids=["on demand", "never up", "before the window"],
)
def test_an_instance_that_says_nothing_of_spot_in_this_time_is_left_out(life):
    assert of(entries=[life]).interruptions("g5.xlarge") is None


def test_two_passes_count_a_job_and_an_instance_once():
    lives = [entry(NOW - HOUR, NOW - HOUR // 2 - 1, "interruption")]
    rows = [row(NOW - HOUR // 2 - 1)]
    first = of(rows, lives, (NOW - HOUR, NOW - HOUR // 2))
    second = of(rows, lives, (NOW - HOUR // 2, NOW), first)
    assert second.wait("spot")["count"] == 1
    assert second.interruptions("g5.xlarge")["count"] == 1


def test_what_is_older_than_a_month_is_forgotten():
    lives = [entry(NOW - 60, NOW - 1, "interruption")]
    first = of([row(NOW - 9)], lives)
    later = NOW + 31 * DAY
    second = of(span=(later - 60, later), history=first)
    assert second == SubmitHistory(until=later)


def test_of_a_busy_partition_the_last_jobs_are_kept():
    rows = [row(NOW - 9 - number, number) for number in range(submit_history.MOST_WAITS + 50)]
    assert of(rows).wait("spot") == {
        "seconds": (submit_history.MOST_WAITS - 1) / 2, "count": submit_history.MOST_WAITS,
    }  # fmt: skip


def test_a_pass_takes_up_where_the_last_one_ended_and_looks_back_a_day_at_most():
    until = NOW - submit_history.LATE
    assert window(SubmitHistory(until=NOW - 900), NOW) == (NOW - 900, until)
    assert window(SubmitHistory(), NOW) == (until - DAY, until)
    assert window(SubmitHistory(until=NOW + 900), NOW) == (until, until)  # the clock was set back
    assert window(SubmitHistory(until=NOW + 2 * DAY), NOW) == (until - DAY, until)


def test_the_history_is_there_again_after_a_restart(tmp_path):
    history = of([row(NOW - 9)], [entry(NOW - HOUR, NOW - 60, "interruption")])
    history.save(tmp_path)
    assert SubmitHistory.load(tmp_path) == history


@pytest.mark.parametrize(
    "text", ["", "[]", '{"until": 1}', '{"until": 1, "waits": {"a": [7]}, "spot": {}}']
)
def test_a_damaged_history_begins_anew(tmp_path, text):
    (tmp_path / submit_history.FILE).write_text(text)
    assert SubmitHistory.load(tmp_path) == SubmitHistory()
    assert SubmitHistory.load(tmp_path / "none") == SubmitHistory()
