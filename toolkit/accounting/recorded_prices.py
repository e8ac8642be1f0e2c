"""Spot prices of the records, and of EC2 for what these lack.

EC2 keeps 90 days. A stored day has all zones of the types that the cluster's pools had then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolkit.accounting.days import DAY
from toolkit.prices import SpotHistory, parse_usd, read_history

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from decimal import Decimal

    from mypy_boto3_ec2 import EC2Client

    from toolkit.accounting.records import Records
    from toolkit.accounting.set_aside import SetAside

    Point = tuple[str, str, int, Decimal | None]


def read(
    records: Records,
    ec2: EC2Client,
    region: str,
    types: Collection[str],
    window: tuple[int, int],
) -> tuple[SpotHistory, tuple[SetAside, ...]]:
    """Return the price changes of the window.

    The stored days that can't be read come beside them.
    """
    if not types:
        return SpotHistory(), ()
    since, until = window
    stored = records.prices(region, types, since, until)
    points: list[Point] = [
        (instance_type, zone, second, parse_usd(usd))
        for instance_type, zone, second, usd in stored.points
    ]
    missing = _missing(stored.days, types, since, until)
    if missing:
        missing_types, start, end = missing
        points += _flat(read_history(ec2, missing_types, start, end))
    return SpotHistory.from_points(points), stored.set_aside


def _missing(
    stored: Mapping[str, frozenset[int]], types: Collection[str], since: int, until: int
) -> tuple[set[str], int, int] | None:
    """Return the types and the time that no stored day has."""
    needed = range(since - since % DAY, until, DAY)
    gaps = {
        name: [day for day in needed if day not in stored.get(name, frozenset())] for name in types
    }
    missing_types = {name for name, days in gaps.items() if days}
    if not missing_types:
        return None
    start = min(gaps[name][0] for name in missing_types)
    end = max(gaps[name][-1] for name in missing_types) + DAY
    return missing_types, max(start, since), min(end, until)


def _flat(history: SpotHistory) -> Iterator[Any]:
    for (instance_type, zone), changes in history.changes.items():
        for second, usd in changes:
            yield instance_type, zone, second, usd
