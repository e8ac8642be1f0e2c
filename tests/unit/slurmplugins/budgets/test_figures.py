"""The state of a budget: its step, what is free, the forecast."""

from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.budgets.figures import STALE, Spending, figures
from slurmplugins.budgets.memory import Override, Standing
from slurmplugins.config.budgets import Action, PeriodKind
from tests.fakes.budgets import DECEMBER, NOVEMBER, NOW, a_budget, a_memory

VISION = Spending(frozenset({"vision"}))


def state(usd: str = "0", budget=None, *, now: float = NOW, committed: str = "0", **changes):
    memory = a_memory(usd, measured_until=now, **changes)
    spending = replace(VISION, committed=Decimal(committed))
    return figures(budget or a_budget(), memory, spending, now)


@pytest.mark.parametrize(
    ("usd", "percent", "holds"),
    [
        ("0", 0, False),
        ("49.99", 0, False),
        ("50", 50, False),
        ("99.99", 90, False),
        ("100", 100, True),
    ],
)
def test_a_step_is_reached_at_its_cent(usd, percent, holds):
    item = state(usd)
    assert item.standing.percent == percent
    assert item.holds is holds
    assert item.free == 100 - Decimal(usd)


def test_what_running_jobs_may_still_cost_is_not_free():
    assert state("60", committed="15").free == Decimal(25)


def test_a_lower_step_that_holds_bounds_what_is_free():
    budget = a_budget((50, Action.WARN), (80, Action.REQUEUE))
    assert state("30", budget).free == Decimal(50)


def test_a_budget_that_only_warns_limits_nothing():
    item = state("500", a_budget((50, Action.WARN), (100, Action.SPOT_ONLY)))
    assert item.free is None
    assert item.actions == {Action.WARN, Action.SPOT_ONLY}


def test_a_step_keeps_the_time_at_which_it_was_reached():
    known = Standing(NOVEMBER, 50, NOW - 500)
    item = state("55", standings={"vision-month": known})
    assert item.since == NOW - 500
    assert state("85", standings={"vision-month": known}).since == NOW


def test_a_new_period_begins_without_a_step():
    item = state("100", now=DECEMBER, standings={"vision-month": Standing(NOVEMBER, 100, NOW)})
    assert (item.standing.percent, item.since, item.spent) == (0, None, 0)


def test_other_accounts_and_other_months_do_not_count():
    memory = a_memory(
        "10", days={"vision": {"2026-10-31": Decimal(90)}, "x": {"2026-11-26": Decimal(9)}}
    )
    assert figures(a_budget(), memory, VISION, NOW).spent == 0


def an_override(usd: str | None) -> Override:
    return Override(NOW + 60, "root", "a deadline", NOW - 60, None if usd is None else Decimal(usd))


def test_an_override_adds_dollars_until_its_end():
    item = state("100", overrides={"vision-month": an_override("50")})
    assert (item.usd, item.free, item.standing.percent) == (150, 50, 50)
    assert state("100", overrides={"vision-month": replace(an_override("50"), until=NOW)}).holds


def test_a_lifted_budget_holds_nothing_and_says_so():
    item = state("100", overrides={"vision-month": an_override(None)})
    assert (item.actions, item.free, item.standing.percent) == (frozenset(), None, 100)


def test_stale_figures_reach_no_new_step_and_keep_the_old_one():
    known = {"vision-month": Standing(NOVEMBER, 80, NOVEMBER)}
    memory = a_memory("100", measured_until=NOW - STALE - 1)
    item = figures(a_budget(), memory, VISION, NOW)
    assert (item.stale, item.standing.percent) == (True, 0)
    assert figures(a_budget(), replace(memory, standings=known), VISION, NOW).standing.percent == 80


def test_a_grant_holds_after_its_end_and_not_before_its_begin():
    grant = a_budget(kind=PeriodKind.GRANT, since=NOVEMBER, until=DECEMBER)
    assert state("0", grant, now=NOVEMBER - 1).standing.percent == 0
    assert not state("0", grant).holds
    assert state("0", grant, now=DECEMBER).holds
    assert [state("0", grant, now=at).ended for at in (DECEMBER - 1, DECEMBER)] == [False, True]


def test_a_grant_of_accounts_and_projects_counts_each_job_once():
    grant = a_budget(accounts=("vision",), projects=("imagenet",))
    days = {"2026-11-26": Decimal(10)}
    memory = a_memory(
        days={"vision": days, "language": days, "speech": days},
        projects={"imagenet": {"vision": days, "language": {"2026-11-26": Decimal(4)}}},
    )
    spending = Spending(frozenset({"vision"}), frozenset({"imagenet"}))
    assert figures(grant, memory, spending, NOW).spent == 14


def test_the_forecast_goes_on_at_the_last_weeks_pace():
    days = {f"2026-11-{day:02}": Decimal(2) for day in range(19, 26)}
    memory = a_memory(days={"vision": {**days, "2026-11-26": Decimal(1)}})
    item = figures(a_budget(), memory, VISION, NOW)
    # Fifteen dollars in 7.5 days, and 4.5 days are left.
    assert item.forecast == Decimal(24)


def test_without_a_past_nothing_is_forecast():
    assert state("0", measured_from=NOW).forecast == 0
