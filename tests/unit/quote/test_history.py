"""Waits, boots, interruptions and earlier runs come from records; without any, nothing is said."""

import pytest

from tests.unit.quote.samples import DAY, NOW, attempt, instance
from toolkit.quote.history import Figure, Subject, history

WINDOW = (NOW - 30 * DAY, NOW)
SUBJECT = Subject("llm", "vision", {"spot"}, {"gpu"}, {"g5.xlarge"})


def known(attempts=(), instances=()):
    return history(SUBJECT, attempts, instances, WINDOW)


def test_without_records_nothing_is_known():
    nothing = known()
    assert nothing.run_seconds is nothing.wait_seconds is nothing.boot_seconds is None
    assert nothing.interruptions is None


def test_runs_of_the_same_name_and_account_are_counted_over_their_attempts():
    requeued = attempt(2, job_id="1", state="NODE_FAIL", ended=NOW - DAY + 600)
    others = [attempt(3, job_id="3", name="other"), attempt(4, job_id="4", account="speech")]
    figure = known([attempt(), requeued, *others]).run_seconds
    assert (figure.median, figure.count) == (4200, 1)


def test_a_job_that_failed_is_no_run_to_plan_by():
    assert known([attempt(state="FAILED")]).run_seconds is None


def test_waits_are_those_of_first_attempts_in_the_partition():
    requeued = attempt(2, restarts=1, submitted=NOW - DAY - 9000)
    elsewhere = attempt(3, partition="any", submitted=NOW - DAY - 9000)
    figure = known([attempt(), requeued, elsewhere]).wait_seconds
    assert (figure.median, figure.count) == (300, 1)


def test_nine_of_ten_are_below_the_high_figure():
    waits = [attempt(key, submitted=NOW - DAY - 10 * key) for key in range(1, 12)]
    figure = known(waits).wait_seconds
    assert (figure.median, figure.high) == (60, 100)


def test_a_boot_is_the_time_from_the_launch_to_the_first_job():
    later = attempt(2, started=NOW - DAY + 3600, ended=NOW - DAY + 3700)
    assert known([attempt(), later], [instance()]).boot_seconds.median == 120


def test_an_instance_that_a_pass_saw_after_its_first_job_had_no_paid_boot():
    start = NOW - DAY
    seen_late = instance(running=start + 40)
    later = attempt(2, started=start + 3700, ended=start + 3800)
    assert known([attempt(), later], [seen_late]).boot_seconds.median == 0


def test_a_job_on_the_nodes_next_instance_is_no_boot_of_the_last_one():
    unused = instance(instance_id="i-0", launched=NOW - DAY - 1000, ended=NOW - DAY - 500)
    boots = known([attempt()], [unused, instance()]).boot_seconds
    assert (boots.median, boots.count) == (120, 1)


def test_an_idle_tail_is_the_time_from_the_last_job_to_the_end():
    later = attempt(2, started=NOW - DAY + 3700, ended=NOW - DAY + 7040)
    running, taken = instance(ended=None), instance(end_cause="notice")
    assert known([attempt(), later], [instance(), running, taken]).tail_seconds == Figure(40, 40, 1)


def test_a_job_hours_after_the_launch_is_no_boot():
    late = attempt(started=NOW - DAY + 7000, ended=NOW - DAY + 7050)
    assert known([late], [instance(launched=NOW - DAY)]).boot_seconds is None


@pytest.mark.parametrize("end_cause", ["interruption", "notice"])
def test_interruptions_are_counted_for_each_instance_hour(end_cause):
    taken = instance(instance_id="i-2", end_cause=end_cause)
    on_demand = instance(instance_id="i-3", spot=False)
    never_up = instance(instance_id="i-4", end_cause="boot-failed")
    figure = known((), [instance(), taken, on_demand, never_up]).interruptions
    assert (figure.count, figure.instance_hours, figure.per_hour) == (1, 4.0, 0.25)


def test_records_outside_of_the_window_do_not_count():
    old = NOW - 40 * DAY
    before = attempt(submitted=old, started=old, ended=old + 60)
    assert known([before]).run_seconds is None
