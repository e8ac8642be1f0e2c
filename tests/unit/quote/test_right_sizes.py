"""Runs that followed a recommendation, against the runs before it."""

from dataclasses import replace
from fractions import Fraction

import pytest

from toolkit.quote.measured import MeasuredRun
from toolkit.quote.predictions import Prediction
from toolkit.quote.right_sizes import RightSize, right_sizes

NOW = 1_790_000_000
BEFORE = MeasuredRun("llm", 7, NOW - 100.0, "p5.48xlarge", 8, 20_000.0, 30.0, 200.0)
PREDICTION = Prediction(
    NOW, "llm", "A10G", 4, 22_000.0, 110.0, 1.6, "g5.xlarge", "p5.48xlarge", 8, 200.0
)
AFTER = MeasuredRun("llm", 9, NOW + 60.0, "g5.xlarge", 4, 20_000.0, 80.0, 100.0)
HOURS = {("p5.48xlarge", 8): Fraction(60), ("g5.xlarge", 4): Fraction(4)}


def sizes(*runs, predictions=(PREDICTION,), hours=HOURS):
    return right_sizes(predictions, runs, lambda kind, gpus, _: hours.get((kind, gpus)))


def test_a_run_that_followed_compares_the_cost_of_a_sample_with_before():
    """Take 60 USD for 200 a second, then 4 for 100."""
    ratio = (Fraction(60) / 200) / (Fraction(4) / 100)
    assert sizes(BEFORE, AFTER) == (RightSize("9", NOW + 60, "g5.xlarge", ratio),)


@pytest.mark.parametrize(
    "change",
    [
        {"job_name": "other"},
        {"gpus": 8},
        {"instance_type": "g5.2xlarge"},
        {"started": NOW - 1.0},
        {"job": None},
    ],
)
def test_a_run_that_did_not_follow_saves_nothing(change):
    assert sizes(replace(AFTER, **change)) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"before_instance_type": "", "before_gpus": 0, "before_samples_per_second": None},
        {"before_instance_type": "g5.xlarge", "before_gpus": 4},
    ],
)
def test_a_recommendation_that_changed_nothing_saves_nothing(change):
    assert sizes(AFTER, predictions=[replace(PREDICTION, **change)]) == ()


def test_a_later_recommendation_of_the_same_gpus_ends_no_saving():
    same = replace(
        PREDICTION, at=NOW + 10, before_instance_type="g5.xlarge", before_gpus=4,
        before_samples_per_second=100.0,
    )  # fmt: skip
    assert sizes(AFTER, predictions=[PREDICTION, same]) == sizes(AFTER)


@pytest.mark.parametrize("speed", [None, 0.0, float("nan"), float("inf"), "fast"])
def test_without_a_measured_speed_or_a_price_the_saving_is_not_known(speed):
    unknown = (RightSize("9", NOW + 60, "g5.xlarge", None),)
    assert sizes(replace(AFTER, samples_per_second=speed)) == unknown
    assert (
        sizes(AFTER, predictions=[replace(PREDICTION, before_samples_per_second=speed)]) == unknown
    )
    assert sizes(AFTER, hours={("g5.xlarge", 4): Fraction(4)}) == unknown


def test_of_several_runs_of_a_job_the_newest_counts():
    newer = replace(AFTER, started=NOW + 90.0, samples_per_second=50.0)
    assert [item.started for item in sizes(AFTER, newer)] == [NOW + 90]
