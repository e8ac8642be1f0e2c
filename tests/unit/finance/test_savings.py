"""The savings ledger, by hand."""

from dataclasses import replace
from fractions import Fraction

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
from toolkit.finance.savings import Measure, ledger


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
