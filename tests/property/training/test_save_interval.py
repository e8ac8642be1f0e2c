"""Laws of the save interval: it moves in the right direction.

They hold for any cost of a save and any rate of interruptions.
"""

import math
from dataclasses import replace

from hypothesis import given, strategies as st

from tests.fakes.training import attempt
from toolkit.training.checkpoint import save_interval
from toolkit.training.run_folder import interruption_rate
from toolkit.training.run_folder.attempts import Cause

seconds = st.floats(min_value=0.001, max_value=1e7)
causes = st.sampled_from([*(str(cause) for cause in Cause), "lost", "no-progress", "running"])
OWN_WILL = (
    "finished", "error", "out-of-memory", "time-limit", "cancelled", "requeued", "no-progress",
)  # fmt: skip


def work(cost, mtti):
    return save_interval.interval(cost, mtti, floor=0, ceiling=math.inf)


attempts = st.builds(attempt, causes, st.floats(0, 200), st.integers(1, 8))
pasts = st.lists(attempts, max_size=6)


@given(seconds, seconds, seconds)
def test_a_dearer_save_is_never_made_more_often(one, other, mtti):
    cheap, dear = sorted((one, other))
    assert work(cheap, mtti) <= work(dear, mtti) * (1 + 1e-9)


@given(seconds, seconds, seconds)
def test_instances_that_last_longer_never_mean_more_saves(cost, one, other):
    """Leave out saves that cost too much to be worth making.

    There Daly's answer is the time to the next loss.
    """
    short, long = sorted((one, other))
    if 2 * short > cost:
        assert work(cost, short) <= work(cost, long) * (1 + 1e-9)


@given(seconds, seconds, seconds, seconds)
def test_the_interval_is_within_its_bounds(cost, mtti, one, other):
    floor, ceiling = sorted((one, other))
    assert floor <= save_interval.interval(cost, mtti, floor=floor, ceiling=ceiling) <= ceiling


@given(pasts, attempts, st.integers(1, 64))
def test_an_interruption_never_makes_the_next_seem_further_off_than_a_quiet_end(
    past, last, machines
):
    quiet = interruption_rate.mtti([*past, replace(last, cause="finished")], machines)
    assert interruption_rate.mtti([*past, last], machines) <= quiet


@given(pasts, attempts, st.sampled_from(OWN_WILL), st.integers(1, 64))
def test_an_end_of_its_own_will_never_makes_a_run_save_more_often(past, last, cause, machines):
    before = interruption_rate.mtti(past, machines)
    after = interruption_rate.mtti([*past, replace(last, cause=cause)], machines)
    assert after >= before
    assert work(5.0, after) >= work(5.0, before) * (1 - 1e-9) or after < 2.5


@given(pasts, st.integers(1, 64), st.integers(1, 64))
def test_more_instances_are_never_left_alone_for_longer(past, one, other):
    few, many = sorted((one, other))
    assert interruption_rate.mtti(past, many) <= interruption_rate.mtti(past, few)
