"""Daily objects of what CloudWatch measured: sizes of buckets, bytes through the NAT gateway.

S3 reports a bucket's size once a day, and a day or two late. A day's object therefore has the last
size that is known, with its own day. It is written once, so what it says of the day never changes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud.metrics import DailyMetric, DailyValue
from slurmplugins.model import records
from slurmplugins.model.records import DAY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slurmplugins.cloud.port import RecordStore

    MetricLine = tuple[str, str, str, int, int]
    """Metric, resource, storage type, first second of the value's day, bytes."""

LATE_SECONDS: Final = 3600
"""Seconds after a day's end: CloudWatch may lag behind."""
SIZE_AGE: Final = 2 * DAY
"""Seconds by which the size of a bucket may be older than its day."""
WAIT_SECONDS: Final = 3 * DAY
"""Seconds after a day's end for which a value is waited for. A new bucket has no size at first."""
FIRST_DAYS: Final = 14
"""Days back where the program has no memory. CloudWatch knows nothing of a new cluster's."""
DAYS_AT_ONCE: Final = 31
KEPT_SECONDS: Final = 450 * DAY
"""Seconds for which CloudWatch keeps values of an hour or longer: 455 days."""

STORAGE_TYPES: Final = (
    "StandardStorage",
    "IntelligentTieringFAStorage", "IntelligentTieringIAStorage", "IntelligentTieringAAStorage",
    "IntelligentTieringAIAStorage", "IntelligentTieringDAAStorage",
    "StandardIAStorage", "StandardIASizeOverhead", "StandardIAObjectOverhead",
    "OneZoneIAStorage", "OneZoneIASizeOverhead", "ReducedRedundancyStorage",
    "GlacierInstantRetrievalStorage", "GlacierInstantRetrievalSizeOverhead",
    "GlacierStorage", "GlacierStagingStorage", "GlacierObjectOverhead", "GlacierS3ObjectOverhead",
    "DeepArchiveStorage", "DeepArchiveStagingStorage", "DeepArchiveObjectOverhead",
    "DeepArchiveS3ObjectOverhead",
)  # fmt: skip
"""The types of storage of BucketSizeBytes (Amazon S3 User Guide, "Metrics and dimensions")."""


@dataclass(frozen=True, slots=True)
class MetricDays:
    """Writes the metrics of one cluster's buckets and NAT gateway."""

    cluster: str
    buckets: Sequence[str]
    nat_gateway: str | None
    values: Callable[[Sequence[DailyMetric], int, int], Sequence[DailyValue]]
    """The values of days between two times. Raises CloudError."""
    store: RecordStore
    save: Callable[[int], None]

    def run(self, next_day: int | None, now: int) -> int:
        """Write the days that are over; return the next day.

        Raises CloudError, and may then be repeated.
        """
        today = now // DAY * DAY
        oldest = today - FIRST_DAYS * DAY
        day = oldest if next_day is None else max(next_day // DAY * DAY, now - KEPT_SECONDS)
        day = -(-day // DAY) * DAY
        if day + DAY + LATE_SECONDS > now:
            return day
        until = min(today, day + DAYS_AT_ONCE * DAY)
        values = self.values(self._metrics(), day - SIZE_AGE, until)
        if next_day is None:
            day = max(min((item.day for item in values), default=today), oldest)
            self.save(day)
        while day < until and day + DAY + LATE_SECONDS <= now:
            found = [item for item in values if day - SIZE_AGE <= item.day <= day]
            lines = sorted((*self._sizes(found), *self._bytes(found, day)))
            if not self._is_complete(lines) and now < day + DAY + WAIT_SECONDS:
                break
            if lines:
                self._write(day, lines, now)
            day += DAY
            self.save(day)
        return day

    def _metrics(self) -> list[DailyMetric]:
        return [
            *(
                _size_metric(bucket, storage_type)
                for bucket in self.buckets
                for storage_type in STORAGE_TYPES
            ),
            *(_byte_metric(name, self.nat_gateway) for name in self._nat_names()),
        ]

    def _nat_names(self) -> tuple[str, ...]:
        return records.NAT_METRICS if self.nat_gateway else ()

    def _sizes(self, found: Sequence[DailyValue]) -> list[MetricLine]:
        """Return the last size of each bucket, by type of storage."""
        last: dict[str, int] = {}
        sizes = [item for item in found if item.metric.name == records.SIZE_METRIC]
        for item in sizes:
            bucket = dict(item.metric.dimensions)["BucketName"]
            last[bucket] = max(item.day, last.get(bucket, 0))
        lines = []
        for item in sizes:
            dimensions = dict(item.metric.dimensions)
            bucket = dimensions["BucketName"]
            if item.day == last[bucket]:
                name, kind = records.SIZE_METRIC, dimensions["StorageType"]
                lines.append((name, bucket, kind, item.day, round(item.value)))
        return lines

    def _bytes(self, found: Sequence[DailyValue], day: int) -> list[MetricLine]:
        """Return the bytes of this day through the NAT gateway."""
        return [
            (item.metric.name, item.metric.dimensions[0][1], "", day, round(item.value))
            for item in found
            if item.metric.name in records.NAT_METRICS and item.day == day
        ]

    def _is_complete(self, lines: Sequence[MetricLine]) -> bool:
        known = {(name, resource) for name, resource, *_ in lines}
        wanted = {(records.SIZE_METRIC, bucket) for bucket in self.buckets}
        wanted |= {(name, self.nat_gateway or "") for name in self._nat_names()}
        return wanted <= known

    def _write(self, day: int, lines: Sequence[MetricLine], now: int) -> None:
        gateways = [self.nat_gateway] if self.nat_gateway else []
        more = {"buckets": sorted(self.buckets), "nat_gateways": gateways}
        header = records.first_line("metrics", self.cluster, (day, day + DAY), now, **more)
        content = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        body = records.pack(header, content)
        self.store.add(records.metrics_key(day, body), body)


def _size_metric(bucket: str, storage_type: str) -> DailyMetric:
    dimensions = (("BucketName", bucket), ("StorageType", storage_type))
    return DailyMetric("AWS/S3", records.SIZE_METRIC, dimensions, "Average")


def _byte_metric(name: str, gateway: str | None) -> DailyMetric:
    return DailyMetric("AWS/NATGateway", name, (("NatGatewayId", gateway or ""),), "Sum")
