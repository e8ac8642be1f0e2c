"""The wait for slurmdbd ends with its first answer, or with a reason when the time is up."""

from __future__ import annotations

import pytest

from slurmplugins.slurm import slurmdbd
from slurmplugins.system.command import TIMED_OUT
from tests.fakes.clock import FakeClock
from tests.fakes.late_slurmdbd import LateSlurmdbd
from tests.fakes.runner import FakeRunner


@pytest.mark.parametrize("late", [0, 1, 59])
def test_the_wait_ends_with_the_first_answer(late: float):
    clock = FakeClock()
    began = clock.monotonic()
    runner = LateSlurmdbd(clock, late)
    assert slurmdbd.wait_for_answer(runner, clock, 60) == ""
    assert late <= clock.monotonic() - began < late + 1
    assert {tuple(argv) for argv in runner.commands} == {slurmdbd.QUESTION}


def test_a_slurmdbd_that_never_answers_ends_the_wait_with_its_reason():
    clock = FakeClock()
    began = clock.monotonic()
    reason = slurmdbd.wait_for_answer(LateSlurmdbd(clock, 3600), clock, 60)
    assert "Problem talking to the database" in reason
    assert 60 <= clock.monotonic() - began < 61


def test_a_failure_without_words_gets_some():
    runner = FakeRunner()
    runner.answer("/usr/bin/sacctmgr", returncode=TIMED_OUT)
    assert slurmdbd.wait_for_answer(runner, FakeClock(), 0) == "sacctmgr: exit code 124"
