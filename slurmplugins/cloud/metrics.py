"""CloudWatch's metrics: the head's heartbeat, and what AWS measured of a day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.cloud.client import call

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurmplugins.system.clock import Clock

HEARTBEAT: Final = "Heartbeat"
MOST_METRICS: Final = 500
"""Metrics of one GetMetricData (CloudWatch API reference, "GetMetricData")."""
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class DailyMetric:
    """A metric, of which each day has one value."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str


@dataclass(frozen=True, slots=True)
class DailyValue:
    """The value of a metric on a day."""

    metric: DailyMetric
    day: int  # its first second
    value: float


def put_heartbeat(namespace: str, connect: Callable[[], Any], clock: Clock) -> None:
    """Count one heartbeat in a namespace. Raises CloudError."""

    def work() -> None:
        datum = {"MetricName": HEARTBEAT, "Value": 1.0, "Unit": "Count"}
        connect().put_metric_data(Namespace=namespace, MetricData=[datum])

    call(clock, "put_metric_data", work)


def daily_values(
    connect: Callable[[], Any], clock: Clock, metrics: Sequence[DailyMetric], since: int, until: int
) -> list[DailyValue]:
    """Return the values of whole days, as far as CloudWatch has them.

    `since` and `until` are first seconds of days. Raises CloudError.
    """
    client = connect()
    values: list[DailyValue] = []
    for start in range(0, len(metrics), MOST_METRICS):
        asked = metrics[start : start + MOST_METRICS]
        more: dict[str, str] = {}
        while True:
            page = call(
                clock,
                "get_metric_data",
                lambda asked=asked, more=more: client.get_metric_data(  # type: ignore[misc]
                    MetricDataQueries=[_query(index, item) for index, item in enumerate(asked)],
                    StartTime=datetime.fromtimestamp(since, UTC),
                    EndTime=datetime.fromtimestamp(until, UTC),
                    **more,
                ),
            )
            for result in page["MetricDataResults"]:
                metric = asked[int(str(result["Id"])[1:])]
                pairs = zip(result["Timestamps"], result["Values"], strict=True)
                values += [
                    DailyValue(metric, int(time.timestamp()) // _DAY * _DAY, float(value))
                    for time, value in pairs
                ]
            if not page.get("NextToken"):
                break
            more = {"NextToken": page["NextToken"]}
    return values


def _query(index: int, metric: DailyMetric) -> dict[str, Any]:
    dimensions = [{"Name": name, "Value": value} for name, value in metric.dimensions]
    return {
        "Id": f"m{index}",  # it begins with a small letter
        "MetricStat": {
            "Metric": {
                "Namespace": metric.namespace,
                "MetricName": metric.name,
                "Dimensions": dimensions,
            },
            "Period": _DAY,
            "Stat": metric.statistic,
        },
    }
