"""The numbers of the HTML report, each counted by hand."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest

from tests.unit.accounting.samples import T0, an_attempt, an_instance
from tests.unit.finance.samples import (
    DAY,
    HOUR,
    NOVEMBER,
    a_month,
    a_price_book,
    a_report,
    an_interrupted_job,
    html_of,
    list_prices,
)
from toolkit.accounting.attempt_names import Names, with_names
from toolkit.config.targets import Targets
from toolkit.finance.focus_rows import focus
from toolkit.finance.indicators import Verdict, indicators, values
from toolkit.finance.measures import at_share, measures, spot_saving
from toolkit.finance.outcomes import Cause, Outcomes
from toolkit.prices import SpotHistory


def measured(attempts, instances, **more):
    return measures(a_report(attempts, instances, **more), list_prices())


def by_name(now, before=None, targets=None):
    earlier = None if before is None else values(before)
    return {item.name: item for item in indicators(now, earlier, targets or Targets())}


def a_job(number, state, **changes):
    """Return an attempt of a job of its own, and its instance."""
    first = NOVEMBER + number * DAY
    values = {
        "job_id": str(number),
        "job": str(number),
        "state": state,
        "submitted": first,
        "started": first + 600,
        "ended": first + HOUR,
        "nodes": (f"gpu-{number:03}",),
        "restarts": 0,
    }
    attempt = an_attempt(number, **(values | changes))
    instance = an_instance(
        f"i-{number}", node=f"gpu-{number:03}", launched=first, ended=first + HOUR
    )
    return attempt, instance


def jobs(*states, **changes):
    pairs = [a_job(number, state, **changes) for number, state in enumerate(states, start=1)]
    return [attempt for attempt, _ in pairs], [instance for _, instance in pairs]


def test_success_is_of_jobs_that_completed_or_failed():
    made = measured(
        *jobs("COMPLETED", "COMPLETED", "COMPLETED", "TIMEOUT", "CANCELLED", "REQUEUED")
    )
    assert made.success.value == Fraction(3, 4)
    assert made.completed_job.value == Fraction(made.cost, 3)
    assert made.experiments.value == Fraction(made.cost * 1000, 4)


def test_a_job_that_asked_for_a_requeue_has_not_ended():
    made = measured(*jobs("FAILED", exit_codes=(85, 0)))
    assert made.success.value is None


def test_a_job_that_goes_on_behind_the_report_has_not_ended():
    attempts, instances = jobs("COMPLETED")
    running = [replace(attempts[0], state="RUNNING", ended=None)]
    assert measured(running, instances).success.value is None


def test_utilisation_is_the_time_with_work_of_what_was_paid():
    made = measured(*jobs("COMPLETED"))  # an hour was paid, ten minutes of it were boot
    assert made.utilisation.value == Fraction(5, 6)


def test_the_head_and_racks_are_no_nodes_of_the_cloud():
    head = an_instance("i-h", node="head", pool="head", spot=False, launched=NOVEMBER, ended=None)
    attempts, instances = jobs("COMPLETED")
    made = measured(attempts, [*instances, head])
    assert made.spot_share.value == 1
    assert made.utilisation.value == Fraction(5, 6)


def test_the_spot_share_is_of_hours():
    attempts, instances = jobs("COMPLETED", "COMPLETED", "COMPLETED", "COMPLETED")
    mixed = [replace(instances[0], spot=False), *instances[1:]]
    assert measured(attempts, mixed).spot_share.value == Fraction(3, 4)


def test_gpu_hours_are_those_that_jobs_held():
    made = measured(*jobs("COMPLETED"))
    assert made.gpu_hour.whole == Fraction(5, 6)
    assert made.gpu_hour.part == 360_000


def test_the_wait_is_from_submission_to_start():
    attempts, instances = jobs("COMPLETED", "COMPLETED", "COMPLETED")
    attempts[0] = replace(attempts[0], submitted=attempts[0].started - 7200)
    made = measured(attempts, instances)
    assert (made.median_wait, made.long_wait) == (600, 7200)
    assert by_name(made)["queue wait"].text == "10 m 00 s"


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ((), Fraction(1, 2), None),
        ((5,), Fraction(9, 10), 5),
        ((1, 2), Fraction(1, 2), 1),
        (tuple(range(1, 11)), Fraction(9, 10), 9),
    ],
)
def test_a_share_of_values_is_not_above(values, share, expected):
    assert at_share(values, share) == expected


@pytest.mark.parametrize(
    ("state", "changes", "cause"),
    [
        ("NODE_FAIL", {}, Cause.FAULT),
        ("BOOT_FAIL", {}, Cause.FAULT),
        ("OUT_OF_MEMORY", {}, Cause.JOB),
        ("FAILED", {}, Cause.JOB),
        ("TIMEOUT", {}, Cause.JOB),
        ("PREEMPTED", {}, Cause.STOPPED),
        ("REQUEUED", {}, Cause.STOPPED),
    ],
)
def test_lost_work_has_the_cause_of_its_attempts_end(state, changes, cause):
    made = measured(*jobs(state, **changes))
    assert made.waste == {cause: 300_000, Cause.BOOT: 60_000}
    assert made.wasted == 360_000


def test_a_job_that_saved_and_left_before_ec2_took_its_instance_was_interrupted():
    attempts, instances = an_interrupted_job()
    left = replace(instances[0], end_cause="notice")
    report = a_report(attempts, (left, *instances[1:]))
    assert Outcomes(report).after_interruption == {2}
    assert report.refund == 0, "EC2 refunds what it ends itself"


def test_work_that_an_interruption_lost_is_the_interruptions():
    attempts, instances = an_interrupted_job()
    made = measured(attempts, instances)
    assert made.waste[Cause.INTERRUPTION] == 180_000  # half an hour
    assert Outcomes(a_report(attempts, instances)).after_interruption == {2}


def test_an_instance_that_ec2_refunded_wasted_nothing():
    attempts, instances = an_interrupted_job()
    gone = instances[0].launched + 1800
    early = [replace(attempts[0], ended=gone, comments=""), *attempts[1:]]
    made = measured(early, [replace(instances[0], ended=gone), *instances[1:]])
    assert Cause.INTERRUPTION not in made.waste


def test_a_job_that_failed_long_before_its_node_went_was_not_interrupted():
    attempts, instances = jobs("FAILED")
    ended = instances[0].launched + 1800
    attempts = [replace(attempts[0], ended=ended)]
    late = replace(instances[0], end_cause="interruption", ended=instances[0].launched + 2 * HOUR)
    assert Cause.JOB in measured(attempts, [late]).waste


def test_spot_saves_less_than_its_price_says():
    """Count 3 h 20 m at 1.006 less 0.36.

    Interrupted were 30 m of work and a boot of 10 m, both at 1.006.
    """
    made = measured(*an_interrupted_job())
    hours = Fraction(10, 3)
    gross = hours * (1_006_000 - 360_000)
    taken = Fraction(2, 3) * 1_006_000
    assert abs(spot_saving(made) - (gross - taken)) <= 2


def test_checkpoints_are_counted_only_where_jobs_leave_marks():
    attempts, instances = an_interrupted_job()
    assert measured(attempts, instances).checkpoints.value == 1
    silent = [replace(item, comments="") for item in attempts]
    assert measured(silent, instances).checkpoints is None
    assert by_name(measured(silent, instances))["checkpoint reliability"].text == "not measured"
    late = [silent[0], replace(attempts[1], comments=f"toolkit:checkpoint={attempts[1].ended - 9}")]
    assert measured(late, instances).checkpoints.value == 0


def test_a_ratio_of_nothing_is_no_data_and_never_a_number():
    made = measured([], [])
    for item in indicators(made, None, Targets()):
        assert item.text in {"no data", "not measured"}, item
        assert (item.verdict, item.trend) == (None, None)
    page = html_of(a_report([], []))
    assert page.count("no data") >= 10


def test_each_value_is_held_against_its_target():
    made = measured(*jobs("COMPLETED", "COMPLETED", "COMPLETED", "FAILED"))
    found = by_name(made)
    assert (found["success rate"].target, found["success rate"].verdict) == ("95.0 %", "missed")
    assert found["queue wait"].verdict is Verdict.MET
    easier = by_name(made, targets=Targets(success_percent=75, wait_minutes=9.5))
    assert easier["success rate"].verdict is Verdict.MET
    assert (easier["queue wait"].target, easier["queue wait"].verdict) == ("9 m 30 s", "missed")


def test_trends_say_which_way_and_whether_it_is_better():
    before = measured(*jobs("COMPLETED", "FAILED"))
    now = measured(*jobs("COMPLETED", "COMPLETED", "COMPLETED", "FAILED"))
    found = by_name(now, before)
    rate = found["success rate"].trend
    assert (rate.arrow, rate.text, rate.judgement) == ("▲", "25.0 points", "better")
    cost = found["cost per successful run"].trend
    assert (cost.arrow, cost.text, cost.judgement) == ("▼", "33.3 %", "better")
    assert found["utilisation"].trend.arrow == "="
    assert found["checkpoint reliability"].trend is None


def test_the_spend_of_days_and_accounts_sums_to_the_report():
    report = a_month()
    made = measures(report, list_prices())
    assert sum(sum(day.values()) for day in made.spend.values()) == report.net
    assert len(made.spend) == 30
    names = {name for day in made.spend.values() for name in day}
    assert names == {"vision", "language", "speech", ""}


def test_a_job_at_midnight_is_divided_by_its_seconds():
    midnight = T0 // DAY * DAY + DAY
    attempt = an_attempt(
        submitted=midnight - HOUR, started=midnight - HOUR, ended=midnight + 3 * HOUR
    )
    instance = an_instance(launched=midnight - HOUR, ended=midnight + 3 * HOUR)
    made = measured([attempt], [instance])
    assert [day["vision"] for day in made.spend.values()] == [360_000, 3 * 360_000]


def test_a_job_over_a_change_of_price_costs_each_day_its_own():
    midnight = T0 // DAY * DAY + DAY
    times = {"submitted": midnight - HOUR, "started": midnight - HOUR, "ended": midnight + HOUR}
    points = [("g5.xlarge", "us-east-1a", at, usd) for at, usd in ((0, 0.36), (midnight, 0.72))]
    history = SpotHistory.from_points(
        (kind, zone, at, Decimal(str(usd))) for kind, zone, at, usd in points
    )
    book = replace(a_price_book(), history=history)
    instance = an_instance(launched=midnight - HOUR, ended=midnight + HOUR)
    made = measured([an_attempt(**times)], [instance], book=book)
    assert [day["vision"] for day in made.spend.values()] == [360_000, 720_000]


@pytest.mark.parametrize("names", [Names.NONE, Names.OWN])
def test_no_number_changes_where_names_are_left_out(names):
    report = a_report(*an_interrupted_job())
    hidden = with_names(report, names, "nobody")
    assert measures(hidden, list_prices()) == measures(report, list_prices())
    rows = [focus(item, list_prices()).rows for item in (hidden, report)]
    amounts = [[(row["ChargePeriodStart"], row["BilledCost"]) for row in part] for part in rows]
    assert amounts[0] == amounts[1]
