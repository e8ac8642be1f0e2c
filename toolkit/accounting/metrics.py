"""Metrics of each day by CloudWatch: bytes stored in S3, bytes through the NAT gateway. Pure.

docs/adr/0051-metered-amounts-by-day.md says why a day has the last size that was known.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurmplugins.model import json_input, records

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from toolkit.accounting.records import Page

    MetricLine = tuple[str, str, str, int, int]
    """Metric, resource, storage type, first second of the value's day, bytes."""
    MetricRow = tuple[int, str, int, int]
    """Day, storage type or NAT, first second of the value's day, bytes of all resources."""

STANDARD: Final = "StandardStorage"
NAT: Final = "NatGateway"
LOOK_BACK: Final = 7 * records.DAY
"""Seconds by which a size may be older than the day that it serves for."""
_MOST_BYTES: Final = 2**60
"""An exabyte: the sum over a cluster's buckets fits into 64 bits."""


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """The bytes of all buckets on a day."""

    standard: int
    other: int  # in other storage classes
    measured: int  # the first second of the day of the size


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of days, by their first seconds."""

    stored: Mapping[int, StoredBytes] = field(default_factory=dict)
    passed: Mapping[int, int] = field(default_factory=dict)
    """Bytes through the NAT gateway."""

    @classmethod
    def of(cls, rows: Iterable[MetricRow]) -> Metrics:
        """Return the metrics of rows.

        The first row of a day and a name counts.
        """
        by_day: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
        for day, name, measured, size in rows:
            by_day[day].setdefault(name, (measured, size))
        passed = {day: own[NAT][1] for day, own in by_day.items() if NAT in own}
        stored = {}
        for day, own in by_day.items():
            sizes = {name: size for name, (_, size) in own.items() if name != NAT}
            if sizes:
                standard = sizes.pop(STANDARD, 0)
                measured = min(measured for name, (measured, _) in own.items() if name != NAT)
                stored[day] = StoredBytes(standard, sum(sizes.values()), measured)
        return cls(stored, passed)

    def stored_on(self, day: int) -> StoredBytes | None:
        """Return the bytes of a day, or of the last one before."""
        for earlier in range(day, day - LOOK_BACK - 1, -records.DAY):
            if earlier in self.stored:
                return self.stored[earlier]
        return None


NO_METRICS: Final = Metrics()


def rows_of(page: Page) -> list[MetricRow]:
    """Return the sums of a day's object. Raises ValueError."""
    key = records.parse_key(page.key)
    if key is None or key.since != page.since:
        raise ValueError("the day is not that of the key")
    lines: list[MetricLine] = []
    for line in page.content.splitlines():
        match json_input.loads(line):
            case [str(name), str(resource), str(storage_type), int(second), int(value)] if (
                0 <= second <= page.since and 0 <= value <= _MOST_BYTES
            ):
                lines.append((name, resource, storage_type, second, value))
            case _:
                raise ValueError("a line is no metric")
    return rows_of_day(page.since, lines, page.names("buckets"), page.names("nat_gateways"))


def rows_of_day(
    day: int,
    lines: Iterable[MetricLine],
    buckets: Collection[str],
    nat_gateways: Collection[str],
) -> list[MetricRow]:
    """Return the sums of a day's lines.

    There is none of what a line lacks for: a part of an amount would pass for all of it.
    """
    sizes: dict[str, int] = defaultdict(int)
    seen: set[tuple[str, str]] = set()
    measured = day
    passed = 0
    for name, resource, storage_type, second, value in lines:
        seen.add((name, resource))
        if name == records.SIZE_METRIC and resource in buckets:
            sizes[storage_type] += value
            measured = min(measured, second)
        elif name in records.NAT_METRICS and resource in nat_gateways:
            passed += value
    rows: list[MetricRow] = []
    if buckets and {(records.SIZE_METRIC, bucket) for bucket in buckets} <= seen:
        rows += [(day, name, measured, size) for name, size in sorted(sizes.items())]
    wanted = {(name, item) for name in records.NAT_METRICS for item in nat_gateways}
    if wanted and wanted <= seen:
        rows.append((day, NAT, day, passed))
    return rows
