"""CloudWatch's metrics, as the head's heartbeat uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from slurmplugins.cloud.client import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from slurmplugins.system.clock import Clock

HEARTBEAT: Final = "Heartbeat"


def put_heartbeat(namespace: str, connect: Callable[[], Any], clock: Clock) -> None:
    """Count one heartbeat in a namespace. Raises CloudError."""

    def work() -> None:
        datum = {"MetricName": HEARTBEAT, "Value": 1.0, "Unit": "Count"}
        connect().put_metric_data(Namespace=namespace, MetricData=[datum])

    call(clock, "put_metric_data", work)
