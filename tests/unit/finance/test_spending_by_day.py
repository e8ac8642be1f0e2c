"""Closed days as the head gets them, in parts that fit into a command."""

import json
from itertools import pairwise

import pytest

from toolkit.finance.spending_by_day import DaySpending, MonthSpending

MONTH = MonthSpending(
    "2026-11-01",
    "2026-11-30",
    tuple(
        DaySpending(f"account-{number}", "", f"2026-11-{day:02}", 1_500_000 + day)
        for day in (1, 2, 3, 17, 29)
        for number in range(4)
    ),
)


@pytest.mark.parametrize("length", [1, 300, 700, 16_000])
def test_parts_have_each_day_once_and_no_day_is_left_out(length):
    parts = list(MONTH.parts(length))
    assert [cost for part in parts for cost in part.costs] == list(MONTH.costs)
    assert (parts[0].first, parts[-1].last) == (MONTH.first, MONTH.last)
    for earlier, later in pairwise(parts):
        assert int(later.first[-2:]) == int(earlier.last[-2:]) + 1
    days = [len({cost.day for cost in part.costs}) for part in parts]
    fits = [len(part.as_text()) <= length for part in parts]
    assert all(fit or count < 2 for fit, count in zip(fits, days, strict=True))


def test_a_part_is_what_slurm_budget_reads():
    value = json.loads(MONTH.as_text())
    assert value["costs"][0] == ["account-0", "", "2026-11-01", "1.500001"]


def test_a_month_without_cost_is_one_part():
    (part,) = MonthSpending("2026-11-01", "2026-11-30", ()).parts()
    assert (part.first, part.last, part.costs) == ("2026-11-01", "2026-11-30", ())
