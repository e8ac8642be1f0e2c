"""The charge for each second of an instance."""

from fractions import Fraction

import pytest

from tests.unit.accounting.samples import T0, a_book, an_instance
from toolkit.accounting.allocation import (
    BilledSpan,
    Policy,
    Window,
    allocate,
    billed_spans,
    weigh,
)
from toolkit.accounting.attempt_instances import Usage, Wait
from toolkit.accounting.charges import ChargePrices, Component
from toolkit.accounting.instances import Kind
from toolkit.prices import PriceSource

EVER = Window(0, T0 + 100_000)
WHOLE = Fraction(1)
# 0.36 USD an hour is 100 micro-dollars a second.
RATE = 100


def use(start, end, attempt=1, share=WHOLE, lost_from=None):
    lost_second = None if lost_from is None else T0 + lost_from
    return Usage(attempt, T0 + start, T0 + end, share, lost_second)


def wait(start, end, attempt=1):
    return Wait(attempt, T0 + start, T0 + end)


def lines(instance, *usages, waits=(), window=EVER, policy=None, book=None):
    cost = allocate(instance, usages, book or a_book(), window, policy or Policy(), waits=waits)
    assert cost is not None
    assert cost.gross == sum(c.micro for c in cost.charges if c.component is not Component.REFUND)
    assert cost.net == sum(charge.micro for charge in cost.charges)
    return {(charge.component, charge.attempt): charge.micro for charge in cost.charges}


def weighed(instance, *usages, window=EVER):
    return weigh(instance, usages, a_book(), window, Policy())


def test_boot_idle_gap_and_idle_tail_are_charged_to_the_adjacent_job():
    usages = [use(100, 300, 1), use(400, 900, 2)]
    assert lines(an_instance(ended=T0 + 1000), *usages, waits=[wait(0, 100)]) == {
        (Component.BOOT, 1): 100 * RATE,
        (Component.WORK, 1): 200 * RATE,
        (Component.IDLE_GAP, 1): 100 * RATE,
        (Component.WORK, 2): 500 * RATE,
        (Component.IDLE_TAIL, 2): 100 * RATE,
    }


def test_work_after_the_last_checkpoint_of_a_failed_attempt_is_lost_work():
    assert lines(an_instance(ended=T0 + 1000), use(0, 1000, lost_from=700)) == {
        (Component.WORK, 1): 700 * RATE,
        (Component.LOST, 1): 300 * RATE,
    }


def test_the_unused_share_of_a_busy_instance_is_unallocated():
    assert lines(an_instance(ended=T0 + 100), use(0, 100, share=Fraction(1, 4))) == {
        (Component.WORK, 1): 25 * RATE,
        (Component.UNALLOCATED, None): 75 * RATE,
    }


def test_shares_that_exceed_the_instance_are_scaled_down():
    two = [use(0, 100, 1, Fraction(3, 4)), use(0, 100, 2, Fraction(3, 4))]
    assert lines(an_instance(ended=T0 + 100), *two) == {
        (Component.WORK, 1): 50 * RATE,
        (Component.WORK, 2): 50 * RATE,
    }


def test_two_attempts_with_the_whole_instance_each_pay_half():
    assert lines(an_instance(ended=T0 + 100), use(0, 100, 1), use(0, 100, 2)) == {
        (Component.WORK, 1): 50 * RATE,
        (Component.WORK, 2): 50 * RATE,
    }


def test_a_fully_shared_instance_has_no_unallocated_charge():
    half = Fraction(1, 2)
    shared = lines(an_instance(ended=T0 + 100), use(0, 100, 1, half), use(0, 100, 2, half))
    assert shared == {(Component.WORK, 1): 50 * RATE, (Component.WORK, 2): 50 * RATE}


def test_the_idle_tail_after_two_attempts_is_charged_to_the_later_one():
    half = Fraction(1, 2)
    result = lines(an_instance(ended=T0 + 150), use(0, 100, 1, half), use(0, 100, 2, half))
    assert result[Component.IDLE_TAIL, 2] == 50 * RATE
    assert (Component.IDLE_TAIL, 1) not in result


def test_each_charge_has_the_seconds_of_its_share():
    """Give a refund no seconds, because the time was used."""
    interrupted_instance = an_instance(ended=T0 + 1000, end_cause="interruption")
    part = Fraction(1, 4)
    usages = [use(100, 300, 1, part), use(300, 500, 1, part)]
    window = Window(T0 + 50, T0 + 900)
    cost = allocate(interrupted_instance, usages, a_book(), window, Policy(), waits=[wait(0, 100)])
    assert cost is not None
    assert cost.seconds == 850
    assert {(item.component, item.attempt): item.seconds for item in cost.charges} == {
        (Component.BOOT, 1): 50,
        (Component.WORK, 1): 100,
        (Component.UNALLOCATED, None): 300,
        (Component.IDLE_TAIL, 1): 400,
        (Component.REFUND, 1): 0,
        (Component.REFUND, None): 0,
    }


@pytest.mark.parametrize("end_cause", ["resume-failed", "boot-failed"])
def test_a_launch_that_failed_belongs_to_the_job_that_waited_for_it(end_cause):
    failed_instance = an_instance(ended=T0 + 100, end_cause=end_cause)
    assert lines(failed_instance) == {(Component.FAILED_LAUNCH, None): 100 * RATE}
    assert lines(failed_instance, waits=[wait(0, 80)]) == {(Component.FAILED_LAUNCH, 1): 100 * RATE}


@pytest.mark.parametrize("end_cause", ["suspend", "interruption", "orphan", "unknown", ""])
def test_an_instance_that_no_job_had_or_waited_for_is_idle_and_no_failed_launch(end_cause):
    instance = an_instance(ended=T0 + 5000, end_cause=end_cause)
    window = Window(T0, T0 + 100)
    assert lines(instance, window=window) == {(Component.IDLE, None): 100 * RATE}


def test_the_cause_of_an_end_says_nothing_of_what_ran_before():
    """Keep a job's work its own after slurmctld gave its node up."""
    instance = an_instance(ended=T0 + 188, end_cause="boot-failed")
    assert lines(instance, use(59, 188), waits=[wait(0, 59)]) == {
        (Component.BOOT, 1): 59 * RATE,
        (Component.WORK, 1): 129 * RATE,
    }


def test_a_live_instance_that_boots_belongs_to_the_job_that_waits():
    result = lines(an_instance(ended=None), waits=[wait(0, 100)], window=Window(T0, T0 + 100))
    assert result == {(Component.BOOT, 1): 100 * RATE}


def test_a_job_that_fails_at_once_owns_the_boot_and_the_idle_time_behind_it():
    assert lines(an_instance(ended=T0 + 900), use(300, 300), waits=[wait(0, 300)]) == {
        (Component.BOOT, 1): 300 * RATE,
        (Component.IDLE_TAIL, 1): 600 * RATE,
    }


def test_a_job_that_is_cancelled_in_the_boot_owns_what_was_started_for_it():
    assert lines(an_instance(ended=T0 + 900), waits=[wait(0, 50)]) == {
        (Component.BOOT, 1): 50 * RATE,
        (Component.IDLE_TAIL, 1): 850 * RATE,
    }


def test_a_node_kept_for_a_job_is_that_jobs_wait_and_not_the_idle_gap_of_the_one_before():
    usages = [use(0, 100, 1), use(800, 900, 2)]
    assert lines(an_instance(ended=T0 + 900), *usages, waits=[wait(200, 800, 2)]) == {
        (Component.WORK, 1): 100 * RATE,
        (Component.IDLE_GAP, 1): 100 * RATE,
        (Component.WAIT, 2): 600 * RATE,
        (Component.WORK, 2): 100 * RATE,
    }


def test_a_wait_takes_no_second_from_a_job_that_still_runs():
    usages = [use(0, 500, 1), use(800, 900, 2)]
    result = lines(an_instance(ended=T0 + 900), *usages, waits=[wait(200, 800, 2)])
    assert result[Component.WORK, 1] == 500 * RATE
    assert result[Component.WAIT, 2] == 300 * RATE


def test_the_idle_time_of_a_static_node_is_nobodys():
    static_instance = an_instance(ended=T0 + 1000, static=True)
    assert lines(static_instance, use(500, 600)) == {
        (Component.IDLE, None): 900 * RATE,
        (Component.WORK, 1): 100 * RATE,
    }


def test_pending_time_is_not_billed():
    instance = an_instance(ended=T0 + 1000, running=T0 + 30)
    assert lines(instance, use(100, 1000), waits=[wait(0, 100)]) == {
        (Component.BOOT, 1): 70 * RATE,
        (Component.WORK, 1): 900 * RATE,
    }


def test_the_minimum_minute_and_the_first_hour_begin_as_the_instance_runs():
    assert sum(lines(an_instance(ended=T0 + 40, running=T0 + 30)).values()) == 60 * RATE
    interrupted_instance = an_instance(ended=T0 + 3620, running=T0 + 30, end_cause="interruption")
    assert sum(lines(interrupted_instance).values()) == 0


def test_an_unknown_price_makes_its_seconds_unknown_and_no_others():
    book = a_book(("x9.huge", "us-east-1a", T0 + 60, "0.36"))
    instance = an_instance(ended=T0 + 3640, instance_type="x9.huge", tag_price=None)
    cost = allocate(instance, [use(0, 3640)], book, EVER, Policy())
    assert cost is not None
    assert cost.has_unknown
    assert [(c.micro, c.seconds, c.price_known) for c in cost.charges] == [
        (0, 3600, False),
        (40 * RATE, 40, True),
    ]


def test_a_running_instance_is_charged_up_to_the_end_of_the_window():
    result = lines(an_instance(ended=None), use(100, 200), window=Window(T0, T0 + 250))
    assert result[Component.IDLE_TAIL, 1] == 50 * RATE


def test_the_head_node_has_a_component_of_its_own():
    head = an_instance(pool="head", node="demo-head", spot=False, instance_type="m7i.large")
    assert lines(head) == {(Component.HEAD, None): 2 * 100_800}


def test_a_head_is_billed_from_its_launch_as_its_first_pass_comes_late():
    head = an_instance(
        pool="head", spot=False, instance_type="m7i.large", running=T0 + 300, ended=T0 + 3600
    )
    assert lines(head) == {(Component.HEAD, None): 100_800}


def test_an_instance_without_a_node_is_charged_as_other():
    assert lines(an_instance(node="", pool="", ended=T0 + 100)) == {
        (Component.OTHER, None): 100 * RATE
    }


def test_less_than_a_minute_is_billed_as_a_minute():
    assert lines(an_instance(ended=T0 + 20), use(5, 20), waits=[wait(0, 5)]) == {
        (Component.BOOT, 1): 5 * RATE,
        (Component.WORK, 1): 15 * RATE,
        (Component.MINIMUM, 1): 40 * RATE,
    }
    assert lines(an_instance(ended=T0 + 20), policy=Policy(minimum_seconds=0)) == {
        (Component.IDLE, None): 20 * RATE
    }


def test_spot_instances_interrupted_in_their_first_hour_are_refunded():
    instance = an_instance(ended=T0 + 3599, end_cause="interruption")
    assert lines(instance, use(99, 3599, share=Fraction(1, 2)), waits=[wait(0, 99)]) == {
        (Component.BOOT, 1): 99 * RATE,
        (Component.WORK, 1): 1750 * RATE,
        (Component.UNALLOCATED, None): 1750 * RATE,
        (Component.REFUND, 1): -1849 * RATE,
        (Component.REFUND, None): -1750 * RATE,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"ended": T0 + 3600, "end_cause": "interruption"},  # a refund is for less than an hour
        {"ended": T0 + 100, "end_cause": "suspend"},  # slurm-suspend terminated it, not EC2
        {"ended": T0 + 100, "end_cause": "interruption", "spot": False},
        {"ended": T0 + 100, "end_cause": "interruption", "end_seen": False},
    ],
)
def test_other_instances_are_not_refunded(changes):
    assert not any(component is Component.REFUND for component, _ in lines(an_instance(**changes)))


def test_the_refund_can_be_disabled():
    instance = an_instance(ended=T0 + 100, end_cause="interruption")
    assert lines(instance, policy=Policy(refund_within=0)) == {(Component.IDLE, None): 100 * RATE}


def test_a_new_spot_price_is_charged_from_the_instances_next_hour_on():
    book = a_book(
        ("g5.xlarge", "us-east-1a", T0 - 50, "0.36"),
        ("g5.xlarge", "us-east-1a", T0 + 50, "0.72"),
        ("g5.xlarge", "us-east-1b", T0 + 60, "9.00"),
    )
    assert lines(an_instance(ended=T0 + 3700), use(0, 3650), book=book) == {
        (Component.WORK, 1): 3600 * 100 + 50 * 200,
        (Component.IDLE_TAIL, 1): 50 * 200,
    }
    # In a window that begins within an hour, that hour has the same price.
    cost = lines(an_instance(ended=T0 + 3700), book=book, window=Window(T0 + 3000, T0 + 4000))
    assert cost == {(Component.IDLE, None): 600 * 100 + 100 * 200}


def test_the_instances_hours_begin_as_it_runs():
    book = a_book(
        ("g5.xlarge", "us-east-1a", T0 - 50, "0.36"),
        ("g5.xlarge", "us-east-1a", T0 + 20, "0.72"),
    )
    instance = an_instance(ended=T0 + 100, running=T0 + 30)
    assert lines(instance, book=book) == {(Component.IDLE, None): 70 * 200}


def test_an_on_demand_price_has_no_hours():
    instance = an_instance(ended=T0 + 3700, spot=False)
    assert sum(lines(instance).values()) == round(1_006_000 * 3700 / 3600)


def test_an_instance_whose_launch_failed_in_ec2_costs_nothing():
    failed_instance = an_instance(ended=T0 + 100, end_cause="launch-failed")
    assert allocate(failed_instance, [], a_book(), EVER, Policy()) is None


def test_a_window_charges_its_part_of_the_instances_life():
    instance = an_instance(ended=T0 + 1000)
    tail = lines(instance, use(100, 300), window=Window(T0 + 800, T0 + 900))
    assert tail == {(Component.IDLE_TAIL, 1): 100 * RATE}


def test_an_instance_outside_the_window_is_not_charged():
    earlier_instance = an_instance(ended=T0 + 1000)
    for window in (Window(T0 + 1000, T0 + 2000), Window(0, T0)):
        assert allocate(earlier_instance, [], a_book(), window, Policy()) is None


def test_an_instance_outside_the_window_has_no_parts():
    assert weighed(an_instance(ended=T0 + 1000), window=Window(T0 + 1000, T0 + 2000)) is None


def test_the_rest_of_a_minimum_is_charged_in_the_window_behind_the_end():
    instance, window = an_instance(ended=T0 + 20), Window(T0 + 30, T0 + 4000)
    assert lines(instance, use(5, 20), window=window) == {(Component.MINIMUM, 1): 30 * RATE}


@pytest.mark.parametrize(
    ("ended", "stops", "until", "expected"),
    [
        (None, (), 20, [(0, 20, 20)]),  # it may run on: no minimum yet
        (20, (), 20, [(0, 20, 60)]),
        (20, (), 5000, [(0, 20, 60)]),
        (None, ((10, 20),), 30, [(0, 10, 60), (20, 30, 30)]),
        (30, ((10, 20),), 5000, [(0, 10, 60), (20, 30, 80)]),
        (None, ((10, None),), 30, [(0, 10, 60)]),  # it is stopped
        (None, (), 90, [(0, 90, 90)]),
    ],
)
def test_each_start_that_is_over_is_billed_for_its_minimum(ended, stops, until, expected):
    instance = an_instance(
        ended=None if ended is None else T0 + ended,
        running=T0,
        stops=tuple((T0 + at, None if again is None else T0 + again) for at, again in stops),
    )
    assert list(billed_spans(instance, T0 + until, Policy())) == [
        BilledSpan(T0 + start, T0 + end, T0 + billed) for start, end, billed in expected
    ]


@pytest.mark.parametrize(
    ("starts", "next_use"),
    [((), None), ((100,), None), ((300,), 300), ((299,), None), ((700, 400, 100), 400)],
)
def test_parts_name_the_next_use_behind_their_window(starts, next_use):
    usages = [use(start, start + 50) for start in starts]
    item = weighed(an_instance(), *usages, window=Window(T0, T0 + 300))
    assert item is not None
    assert item.next_use == (None if next_use is None else T0 + next_use)


def test_an_instance_has_a_cost_by_day_and_a_rack_has_none():
    """Give costs by day, for AWS's bill: it has no rack."""
    instance, rack = weighed(an_instance()), weighed(an_instance(kind=Kind.RACK))
    assert instance is not None
    assert rack is not None
    assert [(part.seconds, part.micro) for part in instance.days] == [(7200, 7200 * RATE)]
    assert rack.days == ()


def test_a_charge_names_the_sources_of_its_prices():
    book = a_book()
    cost = allocate(an_instance(ended=T0 + 100), [], book, EVER, Policy())
    assert cost is not None
    (charge,) = cost.charges
    assert charge.prices == ChargePrices((PriceSource.HISTORY,), T0 - 1000)


def test_a_charge_with_two_prices_is_as_old_as_the_older():
    book = a_book(
        ("g5.xlarge", "us-east-1a", T0 - 50, "0.36"),
        ("g5.xlarge", "us-east-1a", T0 + 50, "0.72"),
    )
    cost = allocate(an_instance(ended=T0 + 3700), [], book, EVER, Policy())
    assert cost is not None
    (charge,) = cost.charges
    assert charge.prices == ChargePrices((PriceSource.HISTORY,), T0 - 50)


def test_an_unknown_price_is_in_no_sum_and_has_the_source_unknown():
    unknown = an_instance(instance_type="x9.huge", tag_price=None)
    cost = allocate(unknown, [], a_book(), EVER, Policy())
    assert cost is not None
    assert (cost.gross, cost.sources) == (0, {PriceSource.UNKNOWN})
    assert cost.has_unknown
    assert not cost.prices[0].is_known


def test_a_start_within_the_minimum_of_the_last_one_is_paid_for_twice():
    """Charge each start its minute, and the job what it used."""
    stopped = an_instance(ended=T0 + 100, running=T0, stops=((T0 + 10, T0 + 20),))
    assert lines(stopped, use(30, 100)) == {
        (Component.IDLE, None): 20 * RATE,
        (Component.MINIMUM, None): 50 * RATE,
        (Component.WORK, 1): 70 * RATE,
    }
