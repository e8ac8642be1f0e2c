"""The savings ledger, by hand."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest

from tests.unit.accounting.samples import an_attempt, an_instance
from tests.unit.finance.samples import (
    DAY,
    DECEMBER,
    HOUR,
    NOVEMBER,
    a_report,
    an_interrupted_job,
    list_prices,
)
from toolkit.accounting.allocation import Window
from toolkit.finance import savings_text
from toolkit.finance.charges_by_day import charges_by_day
from toolkit.finance.outcomes import Outcomes
from toolkit.finance.recorded_choices import RecordedChoices
from toolkit.finance.savings import Measure, ledger
from toolkit.quote.planned_starts import PlannedStart
from toolkit.quote.right_sizes import RightSize


def made(attempts, instances, **more):
    report = a_report(attempts, instances, **more)
    return report, ledger(report, list_prices(), list(charges_by_day(report)), Outcomes(report))


def lines(ledger_):
    return {(line.month, line.measure): line for line in ledger_.lines}


def two_jobs_on_one_instance(second=NOVEMBER + DAY):
    """Boot 10 m, work 50 m, idle 20 m, work 40 m."""
    attempts = [
        an_attempt(1, job_id="1", submitted=second, started=second + 600, ended=second + HOUR),
        an_attempt(
            2, job_id="2", submitted=second + HOUR + 1200, started=second + HOUR + 1200,
            ended=second + 2 * HOUR,
        ),
    ]  # fmt: skip
    return attempts, [an_instance("i-1", launched=second, ended=second + 2 * HOUR)]


def test_an_instance_that_a_second_job_finds_saves_a_boot_and_costs_the_gap():
    _, found = made(*two_jobs_on_one_instance())
    line = lines(found)["2026-11", Measure.REUSE]
    assert line.quantity == 1
    assert (line.saved, line.cost, line.net) == (60_000, 120_000, -60_000)


def test_a_powered_down_node_saves_the_hours_without_an_instance():
    _, found = made(*two_jobs_on_one_instance())
    line = lines(found)["2026-11", Measure.POWER_DOWN]
    assert line.quantity == 30 * 24 - 2
    assert line.saved == (30 * 24 - 2) * 1_006_000
    assert line.cost == 60_000


def test_each_month_has_its_own_lines_and_they_sum_to_the_whole():
    attempts, instances = an_interrupted_job(DECEMBER - HOUR)
    window = Window(NOVEMBER, DECEMBER + 31 * DAY)
    _, found = made(attempts, instances, window=window)
    own = lines(found)
    hours = {month: own[month, Measure.SPOT].quantity for month in ("2026-11", "2026-12")}
    assert hours == {"2026-11": 1, "2026-12": Fraction(7, 3)}
    total = found.total(Measure.SPOT)
    assert total.quantity == sum(hours.values())
    assert total.net == sum(line.net for line in found.lines if line.measure is Measure.SPOT)


def test_a_refunded_instance_was_not_paid():
    """Thirty minutes for nothing: boot, and work that is lost."""
    attempts, instances = an_interrupted_job()
    gone = instances[0].launched + 1800
    early = replace(attempts[0], ended=gone, comments="")
    _, found = made([early], [replace(instances[0], ended=gone)])
    line = lines(found)["2026-11", Measure.SPOT]
    assert (line.saved, line.cost) == (503_000, round(1_006_000 / 3))


def test_instances_without_a_known_on_demand_price_are_named_and_in_no_line():
    attempts, instances = two_jobs_on_one_instance()
    unlisted = [replace(instances[0], instance_type="x9.huge")]
    report, found = made(attempts, unlisted)
    assert found.unpriced == ("i-1",)
    assert Measure.SPOT not in {line.measure for line in found.lines}
    assert "without an on-demand price: i-1" in savings_text.as_text(report, found)
    assert savings_text.as_json(report, found)["without_on_demand_price"] == ["i-1"]


def test_on_demand_alone_saves_nothing_by_spot():
    attempts, instances = two_jobs_on_one_instance()
    _, found = made(attempts, [replace(instances[0], spot=False)])
    assert found.total(Measure.SPOT).net == 0
    assert ("2026-11", Measure.SPOT) not in lines(found)


def test_an_empty_ledger_says_no_data():
    report, found = made([], [])
    assert savings_text.as_text(report, found).endswith("no data")


def a_planned_start(**changes):
    """Return a start at noon, chosen at nine for 0.50 an hour."""
    nine = NOVEMBER + DAY + 9 * HOUR
    values = {
        "job": "7", "at": nine, "begin": nine + 3 * HOUR, "deadline": nine + 12 * HOUR,
        "instance_type": "g5.xlarge", "usd_per_hour": Decimal("0.50"),
    }  # fmt: skip
    return PlannedStart(**(values | changes))


def a_later_job(start=3 * HOUR, **changes):
    """Return a job of two hours, at 0.36 an hour."""
    nine = NOVEMBER + DAY + 9 * HOUR
    job = an_attempt(
        submitted=nine + 2, started=nine + start, ended=nine + start + 2 * HOUR, **changes
    )
    instance = an_instance("i-1", launched=nine + start, ended=nine + start + 2 * HOUR)
    return [job], [instance]


def later_start(job, *starts):
    report = a_report(*job)
    parts = list(charges_by_day(report))
    chosen = RecordedChoices(starts or (a_planned_start(),)).of(report.attempts)
    return report, ledger(report, list_prices(), parts, Outcomes(report), chosen)


def test_a_later_start_saves_the_difference_to_the_price_at_submission():
    _, found = later_start(a_later_job())
    line = lines(found)["2026-11", Measure.LATER_START]
    assert (line.quantity, line.saved, line.cost) == (2, 2 * 140_000, 0)


def test_a_later_start_into_a_dearer_hour_saves_less_than_nothing():
    _, found = later_start(a_later_job(), a_planned_start(usd_per_hour=Decimal("0.30")))
    assert lines(found)["2026-11", Measure.LATER_START].saved == -2 * 60_000


@pytest.mark.parametrize(
    "change",
    [
        {"job": "8"},
        {"begin": NOVEMBER + DAY + 13 * HOUR},  # its user let it start before
        {"deadline": NOVEMBER + DAY + 12 * HOUR},  # another job that got the number
        {"at": NOVEMBER + 2 * DAY},
    ],
)
def test_a_start_that_was_planned_for_another_time_or_job_saves_nothing(change):
    _, found = later_start(a_later_job(), a_planned_start(**change))
    assert found.total(Measure.LATER_START).quantity == 0
    assert not found.unknown


def test_a_task_of_an_array_is_found_by_the_number_that_sbatch_printed():
    _, found = later_start(a_later_job(job_id="9", job="7_3"))
    assert found.total(Measure.LATER_START).quantity == 2


def test_a_later_start_on_another_type_is_counted_and_in_no_sum():
    report, found = later_start(a_later_job(), a_planned_start(instance_type="g6.xlarge"))
    assert found.total(Measure.LATER_START).quantity == 0
    assert found.unknown == {Measure.LATER_START: 1}
    assert "later start: 1 job in no line" in savings_text.as_text(report, found)
    told = savings_text.as_json(report, found)["jobs_without_known_saving"]
    assert told == {"later start": 1}


def a_right_size(**changes):
    """Return a run whose samples cost two thirds of before."""
    values = {
        "job": "7", "started": NOVEMBER + DAY + 12 * HOUR, "instance_type": "g5.xlarge",
        "ratio": Fraction(3, 2),
    }  # fmt: skip
    return RightSize(**(values | changes))


def right_size(job, *sizes):
    report = a_report(*job)
    parts = list(charges_by_day(report))
    chosen = RecordedChoices(right_sizes=sizes or (a_right_size(),)).of(report.attempts)
    return report, ledger(report, list_prices(), parts, Outcomes(report), chosen)


def test_the_right_size_saves_what_the_same_samples_cost_more_before():
    _, found = right_size(a_later_job())
    line = lines(found)["2026-11", Measure.RIGHT_SIZE]
    assert (line.quantity, line.saved, line.cost) == (2, 1_006_000, 0)


def test_lost_work_made_no_samples_that_last():
    _, found = right_size(a_later_job(state="NODE_FAIL"))
    assert found.total(Measure.RIGHT_SIZE).quantity == 0


@pytest.mark.parametrize(
    "change", [{"job": "8"}, {"started": NOVEMBER + 2 * DAY}, {"instance_type": "g6.xlarge"}]
)
def test_the_right_size_of_another_run_saves_nothing(change):
    _, found = right_size(a_later_job(), a_right_size(**change))
    assert found.total(Measure.RIGHT_SIZE).quantity == 0


def test_a_right_size_without_a_measured_speed_is_counted_and_in_no_sum():
    _, found = right_size(a_later_job(), a_right_size(ratio=None))
    assert found.total(Measure.RIGHT_SIZE).quantity == 0
    assert found.unknown == {Measure.RIGHT_SIZE: 1}


def test_some_gpus_of_an_instance_cost_their_part_of_it():
    prices = list_prices()
    assert prices.of_gpus("g5.12xlarge", 1, NOVEMBER) == Fraction("5.672") / 4
    assert prices.of_gpus("g5.12xlarge", 8, NOVEMBER) == Fraction("5.672") * 2
    assert prices.of_gpus("m7i.large", 1, NOVEMBER) is None
    assert prices.of_gpus("x9.huge", 1, NOVEMBER) is None
