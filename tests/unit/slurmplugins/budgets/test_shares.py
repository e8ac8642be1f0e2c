"""The share of each account of a budget, while no pass is made."""

from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.budgets.plan import plan
from slurmplugins.budgets.shares import Demand, divide
from slurmplugins.config.budgets import Action
from slurmplugins.model.account_limits import UNITS_PER_USD
from tests.fakes.budgets import a_budget, a_config, a_job, a_memory, a_waiting_job, limits, snapshot

BOTH = a_budget(accounts=("language", "vision"))


def usd_of(*jobs, budget=BOTH, config=None, **accounts):
    """Return the US dollars of each account's share; 40 are free."""
    given = {name: limits(name) for name in budget.accounts} | accounts
    config = config or a_config(budget)
    made = plan(snapshot(*jobs, memory=a_memory("60"), config=config, limits=given))
    return {
        item.account: (item.value - given[item.account].used - given[item.account].running)
        / UNITS_PER_USD
        for item in made.limits
    }


def waiting(number=8, usd="1", **changes):
    return a_waiting_job(number, usd_until_limit=Decimal(usd), **changes)


def test_accounts_without_waiting_jobs_have_equal_shares():
    assert usd_of() == {"language": 20, "vision": 20}


def test_a_share_is_beside_what_its_account_has_used():
    used = limits("vision", used=500_000, running=7)
    assert usd_of(vision=used) == {"language": 20, "vision": 20}


@pytest.mark.parametrize("account", ["vision", "vision-lab"])
def test_a_waiting_job_that_fits_gets_its_room_from_the_others(account):
    assert usd_of(waiting(usd="36", account=account, reason="Priority")) == {
        "language": 2,
        "vision": 38,
    }


def test_one_of_two_jobs_that_do_not_fit_together_may_start():
    """Half the money for each would start neither."""
    jobs = waiting(8, "25"), waiting(9, "25", account="language")
    assert usd_of(*jobs) == {"vision": 32.5, "language": 7.5}


def test_accounts_take_turns():
    jobs = [waiting(number, "10") for number in range(1, 9)]
    assert usd_of(*jobs, waiting(9, "10", account="language")) == {"vision": 30, "language": 10}
    jobs += [waiting(number, "10", account="language") for number in range(9, 12)]
    assert usd_of(*jobs) == {"vision": 20, "language": 20}


def test_an_array_takes_the_tasks_that_fit_and_leaves_the_others_their_turns():
    array = waiting(8, "1000", tasks=1000)
    assert usd_of(array) == {"vision": 40, "language": 0}
    assert usd_of(array, waiting(9, "15", account="language")) == {"vision": 25, "language": 15}


@pytest.mark.parametrize(
    "job",
    [
        waiting(usd="36", reason="Dependency"),
        waiting(usd="36", reason="JobHeldUser"),
        waiting(usd="41", reason="Priority"),
        replace(waiting(reason="Priority"), usd_until_limit=None),
        a_job(end=a_job().begin, usd_until_limit=Decimal(36)),
    ],
    ids=["later", "held", "dearer than all", "without a limit", "running"],
)
def test_a_job_that_money_cannot_start_keeps_none_from_others(job):
    assert usd_of(job) == {"language": 20, "vision": 20}


def test_a_job_that_costs_more_than_is_free_takes_nothing_from_the_others():
    dear = waiting(usd="4000", reason="AssocGrpBillingMinutes")
    assert usd_of(dear) == {"language": 20, "vision": 20}


def test_a_share_that_is_a_small_part_of_its_budget_is_given():
    budget = a_budget(usd=Decimal(100_000), accounts=("language", "vision"))
    memory, jobs = a_memory("60000"), [waiting(9, "5")]
    jobs += [waiting(number, "10", account="language") for number in range(10, 4910)]
    given = {
        "language": limits("language", group_minutes=40_000 * UNITS_PER_USD),
        "vision": limits(group_minutes=0),
    }
    made = plan(snapshot(*jobs, memory=memory, config=a_config(budget), limits=given))
    (vision,) = (item for item in made.limits if item.account == "vision")
    assert vision.value >= 5 * UNITS_PER_USD


@pytest.mark.parametrize(("usd", "lowered"), [("40", False), ("60", True)])
def test_shares_are_not_lowered_for_a_thousandth_of_their_budget(usd, lowered):
    """Take idle time from a budget of 100,000 USD."""
    budget = a_budget(usd=Decimal(100_000), accounts=("language", "vision"))
    half = 20_000 * UNITS_PER_USD
    given = {name: limits(name, group_minutes=half) for name in ("language", "vision")}
    memory = a_memory(str(60_000 + 2 * Decimal(usd)))
    made = plan(snapshot(memory=memory, config=a_config(budget), limits=given))
    assert len(made.limits) == 2 * lowered


def test_stale_figures_raise_no_share():
    given = {
        "language": limits("language", group_minutes=40 * UNITS_PER_USD),
        "vision": limits(group_minutes=0),
    }
    memory = replace(a_memory("60"), measured_until=a_memory("60").measured_until - 2000)
    made = plan(snapshot(waiting(usd="36"), memory=memory, config=a_config(BOTH), limits=given))
    assert made.limits == ()


def test_a_job_that_may_use_spot_alone_keeps_no_money_where_it_cannot_start():
    budget = replace(BOTH, steps=a_budget((50, Action.SPOT_ONLY), (100, Action.HOLD)).steps)
    assert usd_of(waiting(usd="36", reason="None"), budget=budget) == {"language": 20, "vision": 20}
    spot = waiting(usd="36", reason="None", partitions=("spot",))
    assert usd_of(spot, budget=budget) == {"language": 2, "vision": 38}


def test_a_job_that_needs_more_than_it_asked_for_gets_the_rest():
    """Slurm bills whole nodes where a partition gives them."""
    assert usd_of(waiting(usd="4")) == {"vision": 40, "language": 0}


def test_an_account_below_another_has_the_share_of_that_one():
    budget = a_budget(accounts=("language", "vision", "vision-lab"))
    families = {"vision": frozenset({"vision", "vision-lab"})}
    config = a_config(budget, families=families)
    assert usd_of(budget=budget, config=config) == {"language": 20, "vision": 20, "vision-lab": 20}


def test_an_account_alone_has_all_and_accounts_of_a_spent_budget_have_none():
    assert usd_of(budget=a_budget(), vision=limits()) == {"vision": 40}
    assert usd_of(budget=replace(BOTH, usd=Decimal(50))) == {"language": 0, "vision": 0}


def test_lower_limits_are_set_before_higher_ones():
    """A pass that ends in between gives nobody more."""
    high = limits("vision", group_minutes=30 * UNITS_PER_USD)
    low = limits("language", group_minutes=10 * UNITS_PER_USD)
    made = plan(
        snapshot(
            waiting(usd="36", account="language"),
            memory=a_memory("60"),
            config=a_config(BOTH),
            limits={"language": low, "vision": high},
        )
    )
    assert [item.account for item in made.limits] == ["vision", "language"]


def test_a_job_that_gets_room_is_not_told_that_too_little_is_left():
    given = {name: limits(name) for name in BOTH.accounts}
    jobs = waiting(8, "36"), waiting(9, "39")
    made = plan(snapshot(*jobs, memory=a_memory("60"), config=a_config(BOTH), limits=given))
    assert [item.job for item in made.notices] == []
    jobs = waiting(8, "36", account="language"), waiting(9, "39")
    made = plan(snapshot(*jobs, memory=a_memory("60"), config=a_config(BOTH), limits=given))
    assert [item.job for item in made.notices] == [9]


def test_a_million_tasks_are_divided_in_few_turns():
    queue = [Demand(number, 1, 10**6) for number in range(1000)]
    assert divide(10**6, {"a": queue, "b": queue}) == {"a": 500_000, "b": 500_000}
