"""The lost work of an attempt."""

import pytest

from tests.unit.accounting.samples import T0, an_attempt

START, END = T0 + 600, T0 + 3600


@pytest.mark.parametrize("state", ["COMPLETED", "CANCELLED", "RUNNING", "SUSPENDED"])
def test_a_completed_or_cancelled_attempt_has_no_lost_work(state):
    assert an_attempt(state=state).lost_from() is None


@pytest.mark.parametrize(
    "state", ["NODE_FAIL", "FAILED", "OUT_OF_MEMORY", "BOOT_FAIL", "PREEMPTED", "TIMEOUT"]
)
def test_all_work_of_a_failed_attempt_without_a_checkpoint_is_lost(state):
    assert an_attempt(state=state).lost_from() == START


def test_a_requeue_with_exit_code_85_has_no_lost_work():
    assert an_attempt(state="REQUEUED", exit_codes=(85, 0)).lost_from() is None
    assert an_attempt(state="REQUEUED", exit_codes=(0, 85)).lost_from() is None


def test_a_requeue_with_another_exit_code_has_lost_work():
    assert an_attempt(state="REQUEUED", exit_codes=(0, 0)).lost_from() == START


def test_lost_work_begins_at_the_last_checkpoint():
    comments = f"x toolkit:checkpoint={START + 10} y\ntoolkit:checkpoint={START + 70}"
    assert an_attempt(state="NODE_FAIL", comments=comments).lost_from() == START + 70
    assert an_attempt(state="CANCELLED", comments=comments).lost_from() == START + 70


@pytest.mark.parametrize("at", [START - 1, END + 1, "99999999999999"])
def test_a_checkpoint_mark_outside_the_attempt_is_ignored(at):
    comments = f"toolkit:checkpoint={at}"
    assert an_attempt(state="NODE_FAIL", comments=comments).lost_from() == START


def test_an_attempt_without_a_start_or_an_end_has_no_lost_work():
    assert an_attempt(state="NODE_FAIL", started=None).lost_from() is None
    assert an_attempt(state="RUNNING", ended=None).lost_from() is None
