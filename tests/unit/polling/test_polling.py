"""Waits of limited time, on a clock of the test's own."""

import pytest

from tests.fakes.clock import FakeClock
from toolkit import polling
from toolkit.polling import Wait


@pytest.mark.parametrize(("pause", "looks"), [(None, 6), (1.0, 11)])
def test_a_wait_is_over_after_its_time_and_not_at_it(pause, looks):
    """Look at once, and after each pause until the end."""
    clock = FakeClock()
    wait = Wait(10.0, clock.sleep, clock.monotonic, pause=pause)
    count = 0
    while not wait.is_over:
        count += 1
        wait.pause()
    assert count == looks


def test_waits_without_a_pause_of_their_own_share_one(monkeypatch):
    """Read the pause at each look: a test can shorten it."""
    clock, pauses = FakeClock(), []
    wait = Wait(10.0, pauses.append, clock.monotonic)
    wait.pause()
    monkeypatch.setattr(polling, "POLL_SECONDS", 0.5)
    wait.pause()
    assert pauses == [2.0, 0.5]
