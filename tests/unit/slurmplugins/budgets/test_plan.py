"""The changes in Slurm that follow from a budget's state."""

from dataclasses import replace
from decimal import Decimal

from slurmplugins.budgets.figures import STALE
from slurmplugins.budgets.memory import Override, Saved, Standing
from slurmplugins.budgets.plan import NOTICES, plan
from slurmplugins.config.budgets import Action, BudgetsConfig
from slurmplugins.model.account_limits import UNITS_PER_USD
from tests.fakes.budgets import (
    NOVEMBER,
    NOW,
    a_budget,
    a_config,
    a_job,
    a_memory,
    a_waiting_job,
    limits,
    snapshot,
)

STEPS = ((80, Action.SPOT_ONLY), (90, Action.HOLD), (95, Action.REQUEUE), (100, Action.REFUSE))


def settings(made) -> dict[str, int | None]:
    return {item.setting: item.value for item in made.limits}


def test_the_limit_is_what_slurm_counted_with_what_is_free():
    current = limits(used=500_000, running=60_000)
    made = plan(snapshot(a_job(), memory=a_memory("40"), limits={"vision": current}))
    # 40 USD are spent, and one is what the running job may still cost.
    assert settings(made) == {"GrpTRESMins=billing": 560_000 + 59 * UNITS_PER_USD}
    assert made.memory.limited == {"vision"}
    assert made.figures[0].committed == 1


def test_a_job_bought_on_demand_is_committed_at_that_price():
    made = plan(snapshot(a_job(), rates={7: Decimal(3)}))
    assert made.figures[0].committed == 3


def test_accounts_below_count_too():
    memory = a_memory(days={"vision-lab": {"2026-11-26": Decimal(70)}})
    made = plan(snapshot(a_job(account="vision-lab"), memory=memory))
    assert (made.figures[0].spent, made.figures[0].committed) == (70, 1)


def test_a_limit_is_not_moved_for_cents():
    """Leave the limit alone: each move stays in slurmdbd as a row."""
    for usd in ("60.05", "59.95"):
        units = int(Decimal(usd) * UNITS_PER_USD)
        current = limits(group_minutes=units)
        assert plan(snapshot(memory=a_memory("40"), limits={"vision": current})).limits == ()


def test_a_spent_budget_locks_the_account_and_a_second_pass_changes_nothing():
    current = limits(used=6_000_000, group_minutes=6_000_000)
    made = plan(snapshot(memory=a_memory("100"), limits={"vision": current}))
    assert settings(made) == {"GrpTRESRunMins=billing": 0}
    held = replace(current, run_minutes=0)
    again = plan(snapshot(memory=made.memory, limits={"vision": held}))
    assert (again.limits, again.denials, again.reached) == ((), (), ())


def test_an_admins_own_limits_come_back_after_the_hold():
    own = limits(run_minutes=7000, submissions=30)
    budget = a_config(a_budget((100, Action.REFUSE)))
    made = plan(snapshot(memory=a_memory("100"), config=budget, limits={"vision": own}))
    assert settings(made)["GrpTRESRunMins=billing"] == 0
    assert settings(made)["GrpSubmitJobs"] == 0
    assert made.memory.held == {"vision": Saved(7000, 30)}
    override = {"vision-month": Override(NOW + 9, "root", "why", NOW)}
    ours = limits(run_minutes=0, submissions=0, group_minutes=0)
    made = plan(
        snapshot(
            memory=replace(made.memory, overrides=override), config=budget, limits={"vision": ours}
        )
    )
    assert settings(made) == {
        "GrpTRESMins=billing": None,
        "GrpTRESRunMins=billing": 7000,
        "GrpSubmitJobs": 30,
    }
    assert made.memory.held == {}


def test_a_budget_that_is_gone_leaves_no_limit():
    memory = a_memory(limited=frozenset({"vision"}), held={"vision": Saved()})
    memory = replace(memory, denied={"batch": frozenset({"vision"})})
    current = limits(group_minutes=5, run_minutes=0)
    made = plan(
        snapshot(
            memory=memory,
            config=BudgetsConfig(folder="/nowhere"),
            limits={"vision": current},
            denied={"batch": frozenset({"vision", "guests"})},
        )
    )
    assert settings(made) == {"GrpTRESMins=billing": None, "GrpTRESRunMins=billing": None}
    assert [item.accounts for item in made.denials] == [frozenset({"guests"})]


def test_limits_that_an_admin_set_on_an_account_without_budget_stay():
    current = limits("language", group_minutes=5, run_minutes=0, submissions=0)
    made = plan(snapshot(limits={"vision": limits(group_minutes=6_000_000), "language": current}))
    assert made.limits == ()


def test_spot_only_denies_the_account_and_those_below_where_instances_are_bought_on_demand():
    config = a_config(a_budget(*STEPS))
    made = plan(snapshot(memory=a_memory("80"), config=config))
    (denial,) = made.denials
    assert (denial.partition, denial.accounts) == ("batch", {"vision", "vision-lab"})
    ours = {"batch": denial.accounts | {"guests"}}
    later = plan(snapshot(memory=replace(made.memory, days={}), config=config, denied=ours))
    assert [item.accounts for item in later.denials] == [frozenset({"guests"})]


def test_each_step_adds_to_those_before():
    config = a_config(a_budget(*STEPS))
    jobs = (
        a_job(),
        a_job(9, may_requeue=False),
        a_job(10, account="language"),
        a_job(11, usd_per_hour=Decimal(0)),
    )
    holding = plan(snapshot(*jobs, memory=a_memory("90"), config=config))
    assert holding.requeues == ()
    assert "GrpSubmitJobs" not in settings(holding)
    stopping = plan(snapshot(*jobs, memory=a_memory("95"), config=config))
    assert stopping.requeues == (7,)
    refusing = plan(snapshot(*jobs, memory=a_memory("100"), config=config))
    assert settings(refusing)["GrpSubmitJobs"] == 0
    assert len(refusing.denials) == 1


def test_each_reached_step_is_announced_once():
    made = plan(snapshot(memory=a_memory("85")))
    assert [item.step.percent for item in made.reached] == [50, 80]
    assert plan(snapshot(memory=made.memory)).reached == ()


def test_stale_figures_lower_no_limit_and_requeue_nothing():
    memory = a_memory("100", measured_until=NOW - STALE - 1)
    config = a_config(a_budget(*STEPS))
    current = limits(group_minutes=9_000_000)
    made = plan(snapshot(a_job(), memory=memory, config=config, limits={"vision": current}))
    assert (made.limits, made.denials, made.requeues) == ((), (), ())
    standings = {"vision-month": Standing(NOVEMBER, 100, NOVEMBER)}
    kept = plan(
        snapshot(
            a_job(),
            memory=replace(memory, standings=standings),
            config=config,
            limits={"vision": current},
        )
    )
    assert settings(kept)["GrpTRESRunMins=billing"] == 0
    assert kept.requeues == ()


def test_a_waiting_job_is_told_its_budget_once():
    jobs = [a_waiting_job(number) for number in range(100, 100 + NOTICES + 5)]
    other = a_waiting_job(99, account="language")
    made = plan(snapshot(*jobs, other, replace(jobs[0], id=98, reason="Resources")))
    assert [item.job for item in made.notices] == [job.id for job in jobs[:NOTICES]]
    assert made.notices[0].text == (
        "toolkit:budget vision-month: account vision may cost 100.00 USD until 2026-12-01 UTC, and"
        " too little is left for the job's whole time limit"
    )
    rest = plan(snapshot(*jobs, memory=made.memory))
    assert [item.job for item in rest.notices] == [job.id for job in jobs[NOTICES:]]
    assert plan(snapshot(*jobs[:3], memory=rest.memory)).memory.notes.keys() == {100, 101, 102}


def test_a_job_that_may_use_spot_alone_is_told_so_since_slurm_gives_no_reason():
    config = a_config(a_budget((80, Action.SPOT_ONLY), (100, Action.HOLD)))
    job = replace(a_waiting_job(), reason="None")
    made = plan(snapshot(job, memory=a_memory("80"), config=config))
    assert "account vision may use spot partitions alone until 2026-12-01" in made.notices[0].text
    assert plan(snapshot(job, memory=made.memory, config=config)).notices == ()
    for other in (replace(job, partitions=("spot",)), replace(job, partitions=("spot", "batch"))):
        assert plan(snapshot(other, memory=a_memory("80"), config=config)).notices == ()
    held = replace(job, reason="AssocGrpBillingMinutes")
    (notice,) = plan(snapshot(held, memory=made.memory, config=config)).notices
    assert "may cost 100.00 USD" in notice.text


def test_an_account_that_slurmdbd_lacks_is_a_problem_and_changes_nothing():
    made = plan(snapshot(memory=a_memory("100"), limits={}))
    assert made.problems == ("account vision is not in slurmdbd: `toolkit accounts apply`",)
    assert made.limits == ()


def test_an_expired_override_is_forgotten():
    old = {
        "vision-month": Override(NOW - 1, "root", "why", 0),
        "gone": Override(NOW + 9, "r", "", 0),
    }
    assert plan(snapshot(memory=a_memory(overrides=old))).memory.overrides == {}
