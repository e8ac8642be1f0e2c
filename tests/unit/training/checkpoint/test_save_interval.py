"""The time between saves, and the forecast of a stop."""

import itertools
import math

import pytest

from tests.fakes.training import attempt
from toolkit.training.checkpoint import save_interval
from toolkit.training.run_folder import interruption_rate, stop_forecast


@pytest.mark.parametrize(
    ("cost", "hours", "minutes"),
    [(60, 8, 30.3), (6, 8, 9.7), (1, 24, 6.9)],
)
def test_the_interval_is_young_and_dalys(cost, hours, minutes):
    found = save_interval.interval(cost, hours * 3600, floor=0, ceiling=math.inf)
    assert found / 60 == pytest.approx(minutes, abs=0.1)


@pytest.mark.parametrize(("hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_dalys_own_examples_come_out_as_in_his_paper(hours, minutes):
    """Compute the intervals of Daly's figures 3 to 5.

    A save takes 5 minutes there.
    """
    found = save_interval.interval(300, hours * 3600, floor=0, ceiling=math.inf) / 60
    assert round(found, 1 if minutes < 10 else None) == minutes


@pytest.mark.parametrize("cost", [1, 10, 60, 300])
def test_no_other_interval_loses_less(cost):
    """Minimise the time for saves and for repeated work.

    An interruption costs half an interval and a save, on average.
    """
    mtti = 6 * 3600

    def lost(seconds):
        return cost / seconds + (seconds / 2 + cost) / mtti

    best = save_interval.interval(cost, mtti, floor=0, ceiling=math.inf)
    assert lost(best) < 1.01 * min(lost(best * factor) for factor in (0.5, 0.8, 1.25, 2))


def test_the_interval_stays_within_its_bounds():
    assert save_interval.interval(0.001, 3600, floor=30, ceiling=60) == 30
    assert save_interval.interval(600, 1e9, floor=30, ceiling=3600) == 3600
    assert save_interval.interval(100, 10, floor=0, ceiling=math.inf) == 10


def test_more_instances_are_interrupted_sooner_and_a_quiet_past_counts():
    one = interruption_rate.mtti((), 1)
    assert interruption_rate.mtti((), 8) == one / 8
    assert interruption_rate.mtti([attempt("finished", 100)], 1) > one
    assert interruption_rate.mtti([attempt("spot-interruption", 1)] * 3, 1) < one


def test_what_a_run_ends_by_itself_is_no_interruption():
    quiet = interruption_rate.mtti([attempt("finished", 5)], 1)
    for cause in ("error", "out-of-memory", "cancelled", "time-limit", "requeued", "no-progress"):
        assert interruption_rate.mtti([attempt(cause, 5)], 1) == quiet
    for cause in ("spot-interruption", "preemption", "node-failure", "transient", "lost"):
        assert interruption_rate.mtti([attempt(cause, 5)], 1) < quiet


def test_a_known_rate_is_begun_with():
    assert interruption_rate.mtti((), 2, per_instance_hour=0.5) == 3600


@pytest.mark.parametrize(
    ("step", "save", "in_flight", "says"),
    [
        (0.5, 40, 40, None),
        (0.5, 60, 60, "write at 1179 MiB/s, not 1000; or codec=DcpCodec()"),
        (0.5, 40, 600, "save with background=True"),
        (60, 5, 5, "take fewer samples a step"),
    ],
)
def test_a_stop_that_does_not_fit_the_notice_is_told_with_what_to_change(
    step, save, in_flight, says
):
    found = stop_forecast.forecast(
        step_seconds=step,
        in_flight_seconds=in_flight,
        save_seconds=save,
        saved_bytes=save * 1000 * 2**20,
    ).warning()
    assert (found is None) if says is None else (says in found)


def test_no_advice_is_to_stop_between_gradients_and_their_optimizer_step():
    """Advise no stop between gradients and their optimizer step.

    A checkpoint holds no gradients, so the sum of several steps would be lost.
    """
    for step, save, in_flight in itertools.product((0.5, 60, 600), repeat=3):
        found = stop_forecast.forecast(
            step_seconds=step, in_flight_seconds=in_flight, save_seconds=save, saved_bytes=2**30
        )
        assert "accumulate" not in found.advice()
