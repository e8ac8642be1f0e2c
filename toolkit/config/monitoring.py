"""The sections of cluster.yaml on logs and alarms in CloudWatch."""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from toolkit.config import types
from toolkit.config.raw import Finding, mapping
from toolkit.config.section import Section

_REGION_PART = 3  # of an ARN

# https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html
RetentionDays = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922,
    3288, 3653,
]  # fmt: skip


class Logs(Section):
    """The logs of head and compute nodes, which CloudWatch keeps."""

    enabled: bool = True
    """`false`: logs stay on the machines, and end with them."""
    retention_days: RetentionDays = 30


class Alarms(Section):
    """The alarms about a head node that is silent, or whose status checks fail."""

    enabled: bool = True
    silent_minutes: Annotated[int, Field(ge=3, le=60)] = 10
    """The minutes without a heartbeat after which the alarm fires."""
    email: Annotated[str, Field(pattern=types.EMAIL)] | None = None
    """The address that gets them. AWS asks it for a confirmation first."""
    topic: Annotated[str, Field(pattern=types.TOPIC)] | None = None
    """An SNS topic of yours that gets them, by its ARN."""


def monitoring_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a topic of another region, which no alarm reaches."""
    topic = mapping(raw, "alarms").get("topic")
    region = mapping(raw, "aws").get("region")
    parts = topic.split(":") if isinstance(topic, str) else []
    if isinstance(region, str) and len(parts) > _REGION_PART and parts[_REGION_PART] != region:
        yield (
            ("alarms", "topic"),
            f"is in {parts[_REGION_PART]}; CloudWatch sends alarms of {region} to topics there",
        )
