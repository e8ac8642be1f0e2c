"""The jobs of projects that a pass holds and releases: Slurm has no limit for wckeys."""

from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.budgets.plan import plan
from slurmplugins.config.budgets import Action, PeriodKind
from tests.fakes.budgets import (
    NOVEMBER,
    NOW,
    TODAY,
    a_budget,
    a_config,
    a_job,
    a_job_of_a_project,
    a_memory,
    snapshot,
)

HELD = "JobHeldAdmin"


def a_project_budget(*steps, **changes):
    return a_budget(*steps, accounts=(), projects=("imagenet",), **changes)


def planned(*jobs, usd="0", budget=None, held=(), **changes):
    """Return the plan after the project has spent so much."""
    config = a_config(budget or a_project_budget())
    memory = a_memory(
        projects={"imagenet": {"language": {TODAY: Decimal(usd)}}},
        held_jobs=frozenset(held),
        **changes,
    )
    return plan(snapshot(*jobs, config=config, memory=memory, limits={}))


def test_a_job_is_held_if_too_little_is_left_for_its_whole_time_limit():
    made = planned(a_job_of_a_project(8, "30"), a_job_of_a_project(9, "31"), usd="40")
    assert (made.holds, made.releases, made.memory.held_jobs) == ((9,), (), {9})
    assert made.figures[0].spent == 40
    assert made.notices[0].text == (
        "toolkit:budget vision-month: project imagenet may cost 100.00 USD until 2026-12-01 UTC,"
        " and too little is left for the job's whole time limit"
    )


def test_a_job_that_cannot_start_yet_takes_nothing_from_the_others():
    later = a_job_of_a_project(8, "90", reason="Dependency")
    assert planned(later, a_job_of_a_project(9, "90")).holds == ()
    assert planned(later, usd="50").holds == (8,)


def test_running_jobs_count_until_their_time_limits():
    running = a_job(7, account="language", wckey="imagenet", usd_per_hour=Decimal(80))
    made = planned(running, a_job_of_a_project(8, "30"))
    assert made.figures[0].committed == 80
    assert made.holds == (8,)


def test_a_held_job_is_released_once_it_fits_and_not_before():
    job = a_job_of_a_project(8, "30", reason=HELD)
    waits = planned(job, usd="80", held={8})
    assert (waits.holds, waits.releases, waits.memory.held_jobs) == ((), (), {8})
    free = planned(job, usd="70", held={8})
    assert (free.releases, free.memory.held_jobs) == ((8,), {8}), "ours until Slurm shows it free"
    again = planned(replace(job, reason="Resources"), usd="70", held={8})
    assert (again.releases, again.memory.held_jobs) == ((), frozenset())


@pytest.mark.parametrize("reason", [HELD, "JobHeldUser"])
def test_a_persons_hold_is_left_alone(reason):
    made = planned(a_job_of_a_project(8, "500", reason=reason), a_job_of_a_project(9, "99"))
    assert (made.holds, made.releases, made.notices) == ((), (), ())


def test_a_job_that_a_person_released_against_the_budget_is_held_again():
    assert planned(a_job_of_a_project(8, "30"), usd="80", held={8}).holds == (8,)


def test_a_step_that_holds_keeps_every_job_and_requeues_if_it_says_so():
    running = a_job(7, account="language", wckey="imagenet")
    made = planned(running, a_job_of_a_project(8, "0"), usd="100")
    assert (made.holds, made.requeues) == ((8,), ())
    requeue = a_project_budget((100, Action.REQUEUE))
    assert planned(running, usd="100", budget=requeue).requeues == (7,)


def test_spot_only_holds_jobs_of_partitions_that_may_buy_on_demand():
    budget = a_project_budget((80, Action.SPOT_ONLY))
    jobs = [a_job_of_a_project(8), a_job_of_a_project(9, partitions=("spot",))]
    made = planned(*jobs, usd="80", budget=budget)
    assert made.holds == (8,)
    assert "project imagenet may use spot partitions alone" in made.notices[0].text
    assert made.denials == ()


def test_a_job_without_a_time_limit_fits_into_no_budget():
    made = planned(a_job_of_a_project(8, None))
    assert made.holds == (8,)
    assert "the job has no time limit: submit it with --time" in made.notices[0].text


def test_a_grant_that_ended_says_so_and_pays_no_job():
    grant = a_project_budget(kind=PeriodKind.GRANT, since=NOVEMBER, until=NOW)
    made = planned(a_job_of_a_project(8), budget=grant)
    assert made.holds == (8,)
    assert made.notices[0].text == (
        "toolkit:budget vision-month: the grant of project imagenet ended on 2026-11-26 UTC, and"
        " pays no job"
    )


def test_stale_figures_hold_no_new_job_and_release_none():
    old = {"measured_until": NOW - 7200}
    jobs = [a_job_of_a_project(8, "30"), a_job_of_a_project(9, "30", reason=HELD)]
    made = planned(*jobs, usd="80", held={9}, **old)
    assert (made.holds, made.releases, made.memory.held_jobs) == ((), (), {9})


def test_jobs_of_the_budgets_own_accounts_are_left_to_slurms_limit():
    both = a_budget(accounts=("language",), projects=("imagenet",))
    assert planned(a_job_of_a_project(8, "500"), budget=both).holds == ()


def test_a_budget_that_is_removed_releases_its_jobs():
    job = a_job_of_a_project(8, "500", reason=HELD)
    memory = a_memory(held_jobs=frozenset({8, 9}))
    made = plan(snapshot(job, config=a_config(a_budget()), memory=memory))
    assert (made.releases, made.memory.held_jobs) == ((8,), {8})
