"""The life that is billed, from what ledger, EC2 and sacct know of it."""

from dataclasses import replace

import pytest

from tests.unit.accounting.samples import T0, an_attempt, an_instance
from toolkit.accounting.lives import billed_lives

DAY = 86_400
NOW = T0 + 10 * DAY


def billed(instance, *attempts, others=()):
    return billed_lives([instance, *others], attempts, NOW)[0]


def test_an_unseen_end_is_the_end_of_the_last_job_and_not_the_moment_of_the_notice():
    """Bill 900 seconds although a pass noticed the end after three days."""
    instance = an_instance(ended=T0 + 3 * DAY, end_seen=False, running=T0)
    assert billed(instance, an_attempt(started=T0 + 60, ended=T0 + 900)).ended == T0 + 900


def test_an_unseen_end_without_a_job_is_the_last_pass_that_saw_it():
    instance = an_instance(ended=T0 + 3 * DAY, end_seen=False)
    assert billed(instance).ended == T0
    assert billed(replace(instance, running=T0 + 40)).ended == T0 + 40


def test_an_end_that_nobody_noticed_is_the_later_of_ledger_and_sacct():
    instance = an_instance(ended=None, end_seen=False, seen_at=T0 + 60)
    assert billed(instance).ended == T0 + 60
    assert billed(instance, an_attempt(started=T0 + 30, ended=T0 + 2 * DAY)).ended == T0 + 2 * DAY


def test_no_evidence_reaches_beyond_the_notice_or_the_next_launch():
    late = an_attempt(started=T0 + 60, ended=T0 + 5 * DAY)
    noticed = an_instance(ended=T0 + DAY, end_seen=False)
    assert billed(noticed, late).ended == T0 + DAY
    open_end = an_instance(ended=None, end_seen=False, seen_at=T0)
    following = an_instance("i-2", launched=T0 + 500)
    assert billed(open_end, late, others=[following]).ended == T0 + 500


@pytest.mark.parametrize("state", ["NODE_FAIL", "REQUEUED", "RUNNING", "BOOT_FAIL"])
def test_the_late_discovery_of_a_dead_node_is_no_evidence(state):
    instance = an_instance(ended=T0 + 3 * DAY, end_seen=False)
    attempt = an_attempt(state=state, started=T0 + 60, ended=T0 + 2 * DAY)
    assert billed(instance, attempt).ended == T0


def test_a_seen_end_stays():
    late = an_attempt(started=T0 + 60, ended=T0 + 9000)
    assert billed(an_instance(), late).ended == T0 + 7200
    assert billed(an_instance(ended=None), late).ended is None


def test_a_job_that_ran_before_the_first_pass_proves_that_the_instance_was_running():
    instance = an_instance(running=T0 + 6000)
    assert billed(instance).billed_from == T0 + 6000
    assert billed(instance, an_attempt(started=T0 + 100, ended=T0 + 200)).billed_from == T0 + 100
    cancelled = an_attempt(started=T0 + 100, ended=T0 + 200, state="CANCELLED")
    assert billed(instance, cancelled).billed_from == T0 + 6000


def test_an_instance_without_a_pass_that_saw_it_running_is_billed_from_its_launch():
    assert billed(an_instance()).billed_from == T0


def test_a_start_beyond_the_end_is_the_end():
    assert billed(an_instance(running=T0 + 9000)).billed_from == T0 + 7200
