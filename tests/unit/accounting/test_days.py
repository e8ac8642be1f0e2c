"""An instance's cost by UTC day."""

from datetime import date
from decimal import Decimal

import pytest

from tests.unit.accounting.samples import a_book, an_instance
from toolkit.accounting.allocation import Policy, Window, allocate
from toolkit.accounting.days import DayCost, day_costs_of, day_parts
from toolkit.prices import Price, PriceSource, PriceSpan

MIDNIGHT = 1_795_305_600  # 2026-11-22 00:00:00 UTC
SAT, SUN, MON = (date(2026, 11, day) for day in (21, 22, 23))


def a_span(start, end, usd="0.36", source=PriceSource.HISTORY):
    return PriceSpan(start, end, Price(Decimal(usd), source, 0))


def day_costs(spans, gross, refund):
    return day_costs_of(day_parts(spans), gross, refund)


def test_a_cost_is_cut_at_midnight():
    spans = [a_span(MIDNIGHT - 1800, MIDNIGHT + 2700)]
    assert day_costs(spans, 450_000, 0) == (
        DayCost(SAT, 1800, 180_000, price_known=True),
        DayCost(SUN, 2700, 270_000, price_known=True),
    )


def test_a_price_change_counts_on_its_own_day():
    spans = [a_span(MIDNIGHT - 3600, MIDNIGHT), a_span(MIDNIGHT, MIDNIGHT + 3600, "0.72")]
    assert [item.micro for item in day_costs(spans, 1_080_000, 0)] == [360_000, 720_000]


def test_a_micro_dollar_is_never_lost():
    """Give the rest to the day with the largest remainder."""
    spans = [a_span(MIDNIGHT - 1, MIDNIGHT + 86_401, "0.0036")]
    days = day_costs(spans, 100, 0)
    assert [item.seconds for item in days] == [1, 86_400, 1]
    assert sum(item.micro for item in days) == 100


def test_a_refund_takes_each_day_to_nothing():
    days = day_costs([a_span(MIDNIGHT - 1000, MIDNIGHT + 77)], 107_700, -107_700)
    assert [item.micro for item in days] == [0, 0]


def test_an_unknown_price_makes_its_day_unknown():
    unknown = a_span(MIDNIGHT, MIDNIGHT + 60, "0", PriceSource.UNKNOWN)
    days = day_costs([a_span(MIDNIGHT - 60, MIDNIGHT), unknown], 6000, 0)
    assert [(item.day, item.price_known) for item in days] == [(SAT, True), (SUN, False)]


@pytest.mark.parametrize("seconds", [59, 86_400, 200_001])
def test_the_days_of_an_allocation_sum_to_its_cost(seconds):
    start = MIDNIGHT - 31
    instance = an_instance(launched=start, running=start, ended=start + seconds)
    window = Window(start - 10, start + 10**6)
    book = a_book(("g5.xlarge", "us-east-1a", start - 9, "0.4321"))
    cost = allocate(instance, (), book, window, Policy())
    assert sum(day.micro for day in cost.days) == cost.net
    assert sum(day.seconds for day in cost.days) == cost.seconds
