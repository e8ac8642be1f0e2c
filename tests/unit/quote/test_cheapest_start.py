"""The cheapest start before a deadline: by the hours of past days, and with what that was worth."""

from decimal import Decimal

import pytest

from tests.unit.quote.samples import DAY
from toolkit.prices import SpotHistory
from toolkit.quote import cheapest_start
from toolkit.quote.errors import BadRequest

HOUR = 3600
MIDNIGHT = 1_789_948_800  # 2026-09-21 00:00 UTC
EVENING = MIDNIGHT + 18 * HOUR
DEAR, CHEAP = Decimal("1.00"), Decimal("0.40")


def market(*days, nodes=2.0):
    """Return a market that was cheap at night, so many days ago."""
    points = [("g5.xlarge", "us-east-1a", MIDNIGHT - 40 * DAY, DEAR)]
    for day in days:
        midnight = MIDNIGHT - day * DAY
        points += [
            ("g5.xlarge", "us-east-1a", midnight + 2 * HOUR, CHEAP),
            ("g5.xlarge", "us-east-1a", midnight + 6 * HOUR, DEAR),
        ]
    return cheapest_start.SpotMarket(
        SpotHistory.from_points(points), "g5.xlarge", "us-east-1a", nodes
    )


def choose(place, *, hours=14, run=4 * HOUR):
    return cheapest_start.choose(
        place, now=EVENING, deadline=EVENING + hours * HOUR, run_seconds=run, boot=0
    )


def test_a_job_waits_for_the_hours_that_were_cheap_on_past_days():
    start = choose(market(*range(30)))
    assert start.begin == MIDNIGHT + DAY + 2 * HOUR
    assert (start.usd_now, start.usd) == (Decimal("8.0000"), Decimal("3.2000"))
    assert start.waits
    assert start.saving == pytest.approx(0.6)


def test_the_same_choice_on_past_days_says_what_it_is_worth():
    start = choose(market(*range(30)))
    assert start.backtest.days == 14
    assert start.backtest.saved == pytest.approx(0.6)


def test_a_pattern_that_changes_from_day_to_day_is_worth_little():
    start = choose(market(*range(0, 30, 2)))
    assert start.backtest.saved < 0.4


def test_the_deadline_bounds_the_start():
    assert choose(market(*range(30)), hours=11).begin == MIDNIGHT + DAY + HOUR


def test_a_flat_market_begins_at_once():
    start = choose(market())
    assert (start.begin, start.waits) == (EVENING, False)
    assert start.saving == 0


def test_few_days_of_history_are_no_pattern():
    points = [("g5.xlarge", "us-east-1a", EVENING - 2 * DAY, DEAR)]
    place = cheapest_start.SpotMarket(
        SpotHistory.from_points(points), "g5.xlarge", "us-east-1a", 1.0
    )
    start = choose(place)
    assert (start.begin, start.days, start.backtest) == (EVENING, 2, None)


def test_a_saving_of_less_than_a_hundredth_is_not_worth_a_wait():
    points = [("g5.xlarge", "us-east-1a", MIDNIGHT - 40 * DAY, DEAR)]
    for day in range(-1, 30):
        midnight = MIDNIGHT - day * DAY
        points += [
            ("g5.xlarge", "us-east-1a", midnight + 2 * HOUR, Decimal("0.995")),
            ("g5.xlarge", "us-east-1a", midnight + 6 * HOUR, DEAR),
        ]
    place = cheapest_start.SpotMarket(
        SpotHistory.from_points(points), "g5.xlarge", "us-east-1a", 1.0
    )
    assert choose(place).begin == EVENING


def test_a_job_that_can_not_end_in_time_is_refused():
    with pytest.raises(BadRequest, match=r"its limit is 4\.0 h, and 3\.0 h are left"):
        choose(market(), hours=3)


def test_a_price_that_was_never_known_is_refused():
    place = cheapest_start.SpotMarket(SpotHistory(), "g5.xlarge", "us-east-1a", 1.0)
    with pytest.raises(BadRequest, match="no spot price"):
        choose(place)
