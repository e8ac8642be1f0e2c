"""The lost work of an attempt."""

import pytest

from tests.unit.accounting.samples import T0, an_attempt
from toolkit.accounting.attempts import attempt_numbers, job_labels

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


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({"restarts": 0, "user": "bob"}, {1: 0, 2: 1, 3: 0}),
        ({"restarts": 0}, {1: 0, 2: 1, 3: 0}),
    ],
)
def test_two_jobs_with_one_id_are_told_apart(changes, numbers):
    """Show two jobs after slurmctld has lost its state."""
    attempts = [
        an_attempt(1, restarts=0),
        an_attempt(2, restarts=1, submitted=T0 + 50),
        an_attempt(3, submitted=T0 + 86_400, **changes),
    ]
    assert attempt_numbers(attempts) == numbers
    assert job_labels(attempts) == {
        1: "7 (2026-11-21 10:00:00)",
        2: "7 (2026-11-21 10:00:00)",
        3: "7 (2026-11-22 10:00:00)",
    }


def test_a_requeued_job_has_its_id_alone_for_a_label():
    attempts = [an_attempt(1, restarts=0), an_attempt(2, restarts=2, submitted=T0 + 50)]
    assert job_labels(attempts) == {1: "7", 2: "7"}
