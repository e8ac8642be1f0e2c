"""A pass over the queue: changes, budgets, what is remembered."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from slurmplugins.config.governor import GovernorConfig
from slurmplugins.governor.decide import Reason
from slurmplugins.governor.plan import plan
from slurmplugins.governor.spending import Burst, Refusal, Spending, observe, spent
from tests.fakes.governor import CONFIG, NOW, RULE, a_job, snapshot

BOTH = ("rack", "cloud")
BURST = Burst("vision", "rack", "cloud", Decimal("1.20"))


def small_budget(usd: str) -> GovernorConfig:
    return replace(CONFIG, rules={"rack": replace(RULE, budgets={"vision": Decimal(usd)})})


def running(number: int, **changes: object):
    changes = {"partitions": ("cloud", "rack"), "start_at": NOW - 1800, **changes}
    return replace(a_job(number), states=frozenset({"RUNNING"}), **changes)


def test_a_job_gets_the_cloud_as_its_second_partition():
    made = plan(snapshot(a_job()))
    (change,) = made.changes
    assert (change.label, change.partitions, change.bursts) == ("7", BOTH, True)
    assert made.spending.bursts[7].usd_per_hour == Decimal("1.20")
    (notice,) = made.notices
    assert notice.text == "toolkit:burst age: may start in cloud; at most 1.50 USD"


def test_the_next_pass_changes_nothing_more():
    first = plan(snapshot(a_job()))
    again = plan(snapshot(replace(a_job(), partitions=BOTH), spending=first.spending, now=NOW + 60))
    assert (again.changes, again.notices) == ((), ())
    assert again.committed == {"vision": Decimal("1.50")}


def test_a_job_whose_user_chose_both_partitions_is_never_changed():
    held = replace(a_job(), partitions=BOTH, held=True)
    assert plan(snapshot(held)).decisions == ()


def test_the_cloud_is_taken_away_when_its_reason_is_gone():
    waiting = replace(a_job(), partitions=BOTH)
    memory = Spending(bursts={7: BURST})
    made = plan(snapshot(waiting, spending=memory, cloud_problems={"cloud": "EC2 is away"}))
    (change,) = made.changes
    assert (change.partitions, change.bursts, change.why) == (("rack",), False, "cloud-problem")
    assert made.spending.bursts == {}


def test_the_cloud_is_taken_away_when_the_rule_is_gone():
    waiting = replace(a_job(), partitions=BOTH)
    made = plan(snapshot(waiting, spending=Spending(bursts={7: BURST}), config=GovernorConfig()))
    (change,) = made.changes
    assert (change.partitions, change.why) == (("rack",), "no-rule")


def test_a_person_who_takes_the_cloud_away_is_obeyed():
    seen = Spending(bursts={7: replace(BURST, seen=True)})
    made = plan(snapshot(a_job(), spending=seen))
    assert made.changes == ()
    assert made.decisions[0].reason is Reason.UNDONE


def test_jobs_share_a_budget_by_priority():
    jobs = [a_job(1), a_job(2, priority=9), a_job(3)]
    made = plan(snapshot(*jobs, config=small_budget("3.20")))
    assert [(item.job, item.reason) for item in made.decisions] == [
        (2, Reason.AGE),
        (1, Reason.AGE),
        (3, Reason.OVER_BUDGET),
    ]
    assert made.committed == {"vision": Decimal("3.00")}


def test_promises_of_earlier_passes_come_before_new_ones():
    old = replace(a_job(1, priority=1), partitions=BOTH)
    made = plan(
        snapshot(
            a_job(2, priority=9),
            old,
            spending=Spending(bursts={1: BURST}),
            config=small_budget("1.60"),
        )
    )
    assert [(item.job, item.bursts) for item in made.decisions] == [(1, True), (2, False)]


def test_a_running_job_counts_at_worst_and_an_ended_one_with_its_time():
    memory = observe(Spending(bursts={7: BURST}), [running(7)], CONFIG, NOW)
    assert spent(memory, "vision", NOW) == Decimal("1.500000")
    ended = replace(
        running(7), states=frozenset({"COMPLETED"}), end_at=NOW + 600, partitions=("cloud", "rack")
    )
    memory = observe(memory, [ended], CONFIG, NOW + 660)
    # 2400 s of the job and 300 s until its instance ends.
    assert spent(memory, "vision", NOW + 660) == Decimal("0.900000")
    assert observe(memory, [ended], CONFIG, NOW + 720) == memory


def test_an_attempt_that_nobody_saw_end_keeps_its_worst_cost():
    memory = observe(Spending(bursts={7: BURST}), [running(7)], CONFIG, NOW)
    gone = observe(memory, [], CONFIG, NOW + 60)
    assert spent(gone, "vision", NOW + 60) == Decimal("1.500000")
    assert gone.bursts == {}


def test_a_new_month_has_a_new_budget_but_for_jobs_that_run():
    memory = observe(Spending(bursts={7: BURST}), [running(7)], CONFIG, NOW)
    next_month = NOW + 7 * 86_400
    assert spent(memory, "vision", next_month) == Decimal("1.500000")
    ended = observe(memory, [], CONFIG, next_month)
    assert spent(ended, "vision", next_month) == 0


def test_a_job_on_racks_costs_nothing():
    memory = observe(
        Spending(bursts={7: BURST}), [running(7, partitions=("rack", "cloud"))], CONFIG, NOW
    )
    assert memory.attempts == {}


def test_an_interrupted_job_may_go_on_in_the_cloud_and_both_attempts_count():
    memory = observe(Spending(bursts={7: BURST}), [running(7)], CONFIG, NOW)
    requeued = replace(
        a_job(7, restarts=1), partitions=BOTH, submitted_at=NOW + 10, eligible_at=NOW + 20
    )
    made = plan(snapshot(requeued, spending=memory, now=NOW + 60))
    assert made.decisions[0].bursts
    again = observe(made.spending, [running(7, restarts=1)], CONFIG, NOW + 120)
    assert len(again.attempts) == 2
    assert spent(again, "vision", NOW + 120) > Decimal("1.50")


def test_a_job_whose_instances_never_came_up_stays_for_some_minutes():
    booting = replace(running(7), states=frozenset({"RUNNING", "CONFIGURING"}))
    memory = observe(Spending(bursts={7: BURST}), [booting], CONFIG, NOW)
    requeued = replace(a_job(7, restarts=1), partitions=BOTH)
    made = plan(snapshot(requeued, spending=memory, now=NOW + 60))
    assert [change.partitions for change in made.changes] == [("rack",)]
    assert made.decisions[0].reason is Reason.CLOUD_REFUSED
    later = replace(made.spending, expected={})
    home = replace(requeued, partitions=("rack",))
    assert plan(snapshot(home, spending=later, now=NOW + 1200)).decisions[0].bursts


def test_a_refusal_of_slurm_is_not_repeated_at_each_pass():
    memory = Spending(refusals={7: Refusal(NOW + 900, "Invalid account")})
    assert plan(snapshot(a_job(), spending=memory)).decisions[0].reason is Reason.SLURM_REFUSED
    assert plan(snapshot(a_job(), spending=memory, now=NOW + 901)).decisions[0].bursts


def test_a_job_keeps_its_expected_start_while_backfill_plans_anew():
    first = plan(snapshot(a_job(start_at=NOW + 600)))
    assert first.decisions[0].reason is Reason.RACKS_SOON
    again = plan(snapshot(a_job(), spending=first.spending, now=NOW + 60))
    assert again.decisions[0].reason is Reason.RACKS_SOON


def test_tasks_of_an_array_are_promised_until_they_run():
    array = replace(a_job(9, tasks=3, array=9), label="9_[1-3]")
    made = plan(snapshot(array))
    assert [change.label for change in made.changes] == ["9_[1-3]"]
    task = replace(running(10), array=9)
    rest = replace(a_job(9, tasks=2, array=9), label="9_[2-3]", partitions=BOTH)
    again = plan(snapshot(task, rest, spending=made.spending))
    assert again.committed == {"vision": Decimal("3.00")}
    assert spent(again.spending, "vision", NOW) == Decimal("1.500000")
