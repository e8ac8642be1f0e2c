"""Capacity pools and injected errors."""

from __future__ import annotations

import pytest

from toolkit.local.faults import CapacityPool, Faults, Injection, Pattern

SPOT = CapacityPool("g5.xlarge", "us-east-1a", "spot")
DEMAND = CapacityPool("g5.xlarge", "us-east-1a", "on-demand")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def faults(clock):
    return Faults(clock)


@pytest.mark.parametrize(
    ("text", "covers_spot", "covers_demand"),
    [
        ("spot", True, False),
        ("on-demand", False, True),
        ("g5.xlarge", True, True),
        ("g5.*", True, True),
        ("g5.xlarge/us-east-1b", False, False),
        ("g5.xlarge/us-east-1a/spot", True, False),
        ("*//spot", True, False),
    ],
)
def test_a_pattern_covers_the_pools_that_it_names(text, covers_spot, covers_demand):
    pattern = Pattern.parse(text)
    assert pattern.covers(SPOT) is covers_spot
    assert pattern.covers(DEMAND) is covers_demand


@pytest.mark.parametrize("text", ["a/b/c/d", "a/b/cheap"])
def test_a_malformed_pattern_is_refused(text):
    with pytest.raises(ValueError, match="is not"):
        Pattern.parse(text)


def test_a_pool_without_a_limit_has_unlimited_capacity(faults):
    assert faults.take_capacity(SPOT, at_least=10_000, at_most=10_000) == 10_000


def test_a_limited_pool_supplies_between_the_two_counts_or_nothing(faults):
    faults.limit(Pattern.parse("spot"), 3)
    assert faults.take_capacity(SPOT, at_least=4, at_most=9) == 0
    assert faults.take_capacity(SPOT, at_least=2, at_most=9) == 3
    assert faults.take_capacity(SPOT, at_least=1, at_most=1) == 0
    assert faults.take_capacity(DEMAND, at_least=5, at_most=5) == 5


def test_every_limit_that_covers_a_pool_applies(faults):
    faults.limit(Pattern.parse("spot"), 5)
    faults.limit(Pattern.parse("g5.xlarge"), 2)
    assert faults.take_capacity(SPOT, at_least=1, at_most=9) == 2
    assert faults.rules[Pattern.parse("spot")].free == 3


def test_pools_under_one_limit_share_it(faults):
    faults.limit(Pattern.parse("spot"), 3)
    other = CapacityPool("g5.2xlarge", "us-east-1a", "spot")
    assert faults.available([SPOT, other, DEMAND], 2) == [2, 1, 2]
    assert faults.rules[Pattern.parse("spot")].free == 3, "asking takes nothing"


def test_a_terminated_instance_returns_its_capacity_only_if_configured(faults):
    faults.limit(Pattern.parse("spot"), 0)
    faults.limit(Pattern.parse("on-demand"), 0, returns=True)
    for pool in (SPOT, DEMAND):
        faults.record_termination(pool)
    assert faults.take_capacity(SPOT, at_least=1, at_most=1) == 0
    assert faults.take_capacity(DEMAND, at_least=1, at_most=1) == 1


def test_a_limit_expires(faults, clock):
    faults.limit(Pattern.parse("spot"), 0, seconds=10)
    clock.now = 9.9
    assert faults.take_capacity(SPOT, at_least=1, at_most=1) == 0
    clock.now = 10
    assert faults.take_capacity(SPOT, at_least=1, at_most=1) == 1
    assert not faults.rules


def test_restore_removes_one_limit_or_all(faults):
    faults.limit(Pattern.parse("spot"), 0)
    faults.limit(Pattern.parse("on-demand"), 0)
    faults.restore(Pattern.parse("spot"))
    assert list(faults.rules) == [Pattern.parse("on-demand")]
    faults.restore()
    assert not faults.rules


def test_an_injection_counts_and_expires(faults, clock):
    faults.inject(Injection("Run*", "X", "x", count=2, until=10))
    assert faults.next_injection("DescribeInstances") is None
    assert faults.next_injection("RunInstances").code == "X"
    clock.now = 10
    assert faults.next_injection("RunInstances") is None
    faults.inject(Injection("*", "Y", "y", count=1))
    assert faults.next_injection("RunInstances").code == "Y"
    assert faults.next_injection("RunInstances") is None
