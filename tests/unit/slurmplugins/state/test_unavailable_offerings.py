"""Unavailable offerings: their order, their file and their clock."""

from __future__ import annotations

import pytest

from slurmplugins.cloud import error_codes
from slurmplugins.model.instance import Lifecycle, Offering
from slurmplugins.state import unavailable_offerings
from tests.fakes.clock import FakeClock

SPOT = Offering("g5.xlarge", Lifecycle.SPOT, "us-east-1a", "0.4024")


def test_when_all_offerings_failed_the_one_due_first_is_tried():
    one, two = SPOT, Offering("p4d", Lifecycle.SPOT, "us-east-1a", "1")
    known = {
        one.key: unavailable_offerings.Unavailability("X", 20.0),
        two.key: unavailable_offerings.Unavailability("X", 10.0),
    }
    assert unavailable_offerings.available_or_next([one, two], {}) == (one, two)
    assert unavailable_offerings.available_or_next([one, two], {one.key: known[one.key]}) == (two,)
    assert unavailable_offerings.available_or_next([one, two], known) == (two,)


@pytest.mark.parametrize("text", ["{", "[]", '{"x": 3}', '{"x": {"code": "c"}}'])
def test_a_damaged_state_file_has_no_unavailable_offerings(tmp_path, text: str):
    path = tmp_path / "offerings.json"
    path.write_text(text)
    assert unavailable_offerings.UnavailableOfferings(path, FakeClock()).entries() == {}


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_setting_the_clock_does_not_change_how_long_an_offering_is_unavailable(
    tmp_path, jump: float
):
    clock = FakeClock()
    memory = unavailable_offerings.UnavailableOfferings(tmp_path / "offerings.json", clock)
    memory.mark_unavailable(SPOT, error_codes.error("InsufficientInstanceCapacity", "none"))
    clock.jump(jump)
    clock.advance(unavailable_offerings.CAPACITY_SECONDS - 1)
    assert memory.entries()
    clock.advance(2)
    assert memory.entries() == {}
