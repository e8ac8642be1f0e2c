"""The geometry of the plot of spend."""

from datetime import date, timedelta

import pytest

from toolkit.finance.plots import CLUSTER, OTHERS, SERIES, SIZE, spend_plot

FIRST = date(2026, 11, 1)


def days(count, accounts):
    return {FIRST + timedelta(number): dict(accounts) for number in range(count)}


def test_bars_are_stacked_from_zero_without_a_gap():
    plot = spend_plot(days(2, {"vision": 3_000_000, "": 1_000_000}))
    first, second = [rect for rect in plot.rects if rect.about.startswith("2026-11-01")]
    assert first.y + first.height == SIZE
    assert second.y + second.height == pytest.approx(first.y)
    assert first.height == pytest.approx(3 * second.height)
    assert [item.name for item in plot.series] == ["vision", CLUSTER]


def test_the_scale_has_few_round_steps_and_reaches_over_the_highest_bar():
    plot = spend_plot(days(1, {"vision": 7_300_000}))
    amounts = [tick.micro for tick in plot.ticks]
    assert amounts == [0, 2_000_000, 4_000_000, 6_000_000, 8_000_000]
    assert [tick.top for tick in plot.ticks] == [100, 75, 50, 25, 0]


def test_a_negative_part_is_drawn_below_zero():
    plot = spend_plot({FIRST: {"vision": 2_000_000, "": -1_000_000}})
    up, down = plot.rects
    assert down.y == pytest.approx(up.y + up.height)
    assert down.y + down.height <= SIZE


def test_further_accounts_are_one_series():
    accounts = {f"account-{number}": 1_000_000 - number for number in range(SERIES + 3)}
    plot = spend_plot(days(1, accounts))
    assert [item.name for item in plot.series] == [*list(accounts)[:SERIES], OTHERS]
    assert sum(item.micro for item in plot.series) == sum(accounts.values())
    assert {rect.series for rect in plot.rects} == set(range(SERIES + 1))


def test_an_account_with_the_name_of_a_series_keeps_its_own_place():
    plot = spend_plot({FIRST: {CLUSTER: 5, OTHERS: 4, "": 3}})
    assert [(item.name, item.micro) for item in plot.series] == [
        (CLUSTER, 5),
        (OTHERS, 4),
        (CLUSTER, 3),
    ]
    assert len(plot.rects) == 3


@pytest.mark.parametrize(
    ("count", "unit"), [(30, "day"), (45, "day"), (90, "week"), (365, "month")]
)
def test_a_longer_time_is_drawn_in_larger_steps(count, unit):
    plot = spend_plot(days(count, {"vision": 1_000_000}))
    assert plot.unit == unit
    assert len(plot.rects) <= 45
    assert sum(item.micro for item in plot.series) == count * 1_000_000


def test_days_without_cost_keep_their_place():
    plot = spend_plot({FIRST: {"a": 1}, FIRST + timedelta(9): {"a": 1}})
    assert [rect.x for rect in plot.rects] == [10, 910]
    assert plot.labels == ("2026-11-01", "2026-11-06", "2026-11-10")


def test_no_cost_is_no_plot():
    plot = spend_plot({})
    assert (plot.rects, plot.labels, plot.series) == ((), (), ())
