"""Repeats of a failed call, after the given pauses and no longer."""

from __future__ import annotations

import pytest

from slurmplugins.errors import BootError, MetadataError, SlurmError
from slurmplugins.system.retry import doubling, retry
from tests.fakes.clock import FakeClock


class Failing:
    """A callable that raises these errors, one per call, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)

    def __call__(self) -> str:
        if self._errors:
            raise self._errors.pop(0)
        return "answer"


def test_an_answer_costs_no_pause():
    clock = FakeClock()
    assert retry(Failing(), SlurmError, [1.0], clock) == "answer"
    assert clock.slept == []


def test_each_repeat_waits_for_the_next_pause_and_each_error_is_reported():
    clock, reported = FakeClock(), []
    errors = [SlurmError("1"), SlurmError("2")]
    pauses = doubling(0.5, 4)
    assert retry(Failing(*errors), SlurmError, pauses, clock, failed=reported.append) == "answer"
    assert clock.slept == [0.5, 1.0]
    assert reported == errors


def test_the_last_error_is_raised_when_no_pause_is_left():
    clock = FakeClock()
    with pytest.raises(SlurmError, match="2"):
        retry(Failing(SlurmError("1"), SlurmError("2")), SlurmError, [3.0], clock)
    assert clock.slept == [3.0]


def test_an_error_of_another_class_is_not_repeated():
    with pytest.raises(MetadataError):
        retry(Failing(MetadataError("no")), (SlurmError, BootError), [1.0], FakeClock())


def test_an_error_that_a_repeat_does_not_help_is_raised_at_once():
    clock = FakeClock()
    with pytest.raises(SlurmError):
        retry(
            Failing(SlurmError("no")), SlurmError, [1.0], clock, repeats=lambda item: item.retryable
        )
    assert clock.slept == []
