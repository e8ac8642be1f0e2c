"""The states of alarms, judged as CloudWatch does."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from toolkit.local.aws.alarms import state_of

NOW = 1_795_000_000.0


def alarm(missing, comparison="LessThanThreshold", statistic="Sum", periods=3, points=None):
    return SimpleNamespace(
        namespace="toolkit/demo", metric_name="Heartbeat", dimensions=[], period=60,
        evaluation_periods=periods, datapoints_to_alarm=points, threshold=1.0, statistic=statistic,
        comparison_operator=comparison, treat_missing_data=missing,
    )  # fmt: skip


def datum(age, value=1.0, **fields):
    at = datetime.fromtimestamp(NOW - age, UTC).replace(tzinfo=None)
    known = {"namespace": "toolkit/demo", "name": "Heartbeat", "dimensions": []}
    return SimpleNamespace(**{**known, "timestamp": at, "value": value, **fields})


@pytest.mark.parametrize(
    ("missing", "state"),
    [("breaching", "ALARM"), ("notBreaching", "OK"), (None, "INSUFFICIENT_DATA")],
)
def test_an_alarm_without_data_is_judged_as_it_says(missing, state):
    assert state_of(alarm(missing), [], NOW) == state


@pytest.mark.parametrize(
    ("data", "state"),
    [
        ([datum(10)], "OK"),
        ([datum(170)], "OK"),
        ([datum(181)], "ALARM"),
        ([datum(-5)], "ALARM"),
        ([datum(10, 0.0), datum(70, 0.0)], "ALARM"),
        ([datum(10, 0.5), datum(20, 0.5)], "OK"),
        ([datum(10, namespace="toolkit/demo-2")], "ALARM"),
        ([datum(10, name="Other")], "ALARM"),
    ],
)
def test_one_period_with_a_heartbeat_is_enough(data, state):
    assert state_of(alarm("breaching"), data, NOW) == state


def test_a_threshold_from_below_breaches_above_it():
    judged = alarm("notBreaching", "GreaterThanThreshold", "Maximum", periods=1)
    assert state_of(judged, [datum(10, 2.0)], NOW) == "ALARM"
    assert state_of(judged, [datum(10, 1.0)], NOW) == "OK"
