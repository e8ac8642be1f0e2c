"""The decision on another attempt after an end, and its time."""

from decimal import Decimal

import pytest

from toolkit.training.requeue.failure_cause import Diagnosis
from toolkit.training.requeue.retry_budget import MAX_WAIT, WINDOW, decide
from toolkit.training.run_folder import attempts as attempts_file
from toolkit.training.run_folder.attempts import AttemptRecord, Cause

NOW = 1_000_000.0


def record(number, cause, *, start=None, ended=NOW, cost=None, job="12"):
    return AttemptRecord(
        attempt=number, job_id=job, restart_count=number, started_at=ended - 60, ended_at=ended,
        seconds=60.0, cause=str(cause), step_start=number * 10 if start is None else start,
        step_end=number * 10 + 5, world_size=2, nodes=("gpu-001",), instances=(), cost_usd=cost,
    )  # fmt: skip


def decided(cause, attempts, *, step=1000, cap=None, chance=0.5):
    return decide(
        Diagnosis(cause, "rule", 1, "the line"), attempts,
        job_id="12", step=step, cap_usd=cap, now=NOW, chance=chance,
    )  # fmt: skip


@pytest.mark.parametrize("cause", [Cause.SPOT, Cause.PREEMPTED, Cause.TIME_LIMIT, Cause.SCHEDULED])
def test_what_is_nobodys_fault_comes_back_at_once_and_always(cause):
    found = decided(cause, [record(number, cause) for number in range(500)])
    assert (found.action, found.wait) == ("requeue", 0.0)


def test_an_error_of_the_script_is_not_tried_again():
    found = decided(Cause.ERROR, [record(0, Cause.ERROR)])
    assert found.action == "fail"
    assert "the line" in found.reason


def test_memory_is_tried_once_more():
    assert decided(Cause.MEMORY, [record(0, Cause.MEMORY)]).action == "requeue"
    twice = [record(0, Cause.MEMORY), record(1, Cause.MEMORY)]
    assert decided(Cause.MEMORY, twice).action == "fail"


def test_waits_double_with_jitter_around_them_and_end_in_a_hold():
    attempts, waits = [], []
    for number in range(5):
        attempts.append(record(number, Cause.TRANSIENT))
        waits.append(decided(Cause.TRANSIENT, attempts).wait)
    assert waits == [30.0, 60.0, 120.0, 240.0, 480.0]
    low, high = (decided(Cause.TRANSIENT, attempts[:1], chance=at).wait for at in (0.0, 1.0))
    assert (low, high) == (22.5, 37.5)
    found = decided(Cause.TRANSIENT, [*attempts, record(5, Cause.TRANSIENT)])
    assert found.action == "hold"
    assert "6 in 24 h, 5 allowed" in found.reason
    assert max(waits) <= MAX_WAIT


def test_each_cause_has_a_budget_of_its_own():
    spot = [record(number, Cause.SPOT) for number in range(9)]
    assert decided(Cause.TRANSIENT, [*spot, record(9, Cause.TRANSIENT)]).wait == 30.0


@pytest.mark.parametrize("cause", list(Cause))
@pytest.mark.parametrize("start", [None, 40])
def test_requeues_by_hand_change_nothing_of_what_a_later_end_is_worth(cause, start):
    by_hand = [record(number, Cause.REQUEUED, start=start) for number in range(50)]
    after = [record(number, cause, start=start) for number in range(50, 52)]
    assert decided(cause, [*by_hand, *after], step=40) == decided(cause, after, step=40)


def test_failures_of_other_days_and_other_jobs_do_not_count():
    old = [record(n, Cause.TRANSIENT, ended=NOW - WINDOW - 1) for n in range(9)]
    other = [record(n, Cause.TRANSIENT, job="11") for n in range(9)]
    found = decided(Cause.TRANSIENT, [*old, *other, record(18, Cause.TRANSIENT)])
    assert (found.action, found.wait) == ("requeue", 30.0)


def test_ends_without_a_word_count_as_their_nodes():
    lost = [record(number, attempts_file.LOST) for number in range(20)]
    assert decided(Cause.NODE, [*lost[:5], record(20, Cause.NODE)]).action == "requeue"
    assert decided(Cause.NODE, [*lost, record(20, Cause.NODE)]).action == "hold"


@pytest.mark.parametrize("cause", [Cause.SPOT, Cause.TRANSIENT, Cause.TIME_LIMIT])
def test_three_attempts_that_get_no_further_are_held_whatever_their_cause(cause):
    stuck = [record(number, cause, start=40) for number in range(3)]
    found = decided(cause, stuck, step=40)
    assert found.action == "hold"
    assert "3 attempts began at step 40 and got no further" in found.reason
    assert decided(cause, stuck, step=41).action == "requeue"
    assert decided(cause, stuck[:2], step=40).action == "requeue"


def test_what_may_be_spent_is_a_limit_over_all_attempts():
    dear = [record(0, Cause.SPOT, cost="6.10"), record(1, Cause.SPOT, cost="4.00")]
    found = decided(Cause.SPOT, dear, cap=Decimal(10))
    assert (found.action, found.wait) == ("hold", 0.0)
    assert "$10.10 spent, $10.00 allowed" in found.reason
    assert decided(Cause.SPOT, dear, cap=Decimal(11)).action == "requeue"
    assert decided(Cause.SPOT, [record(0, Cause.SPOT)], cap=Decimal(0)).action == "requeue"


def test_a_finished_run_is_done_whatever_it_cost():
    dear = [record(0, Cause.FINISHED, cost="99")]
    assert decided(Cause.FINISHED, dear, cap=Decimal(1)).action == "done"
