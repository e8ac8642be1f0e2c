"""Spot prices of the records, and of EC2 for what these lack.

EC2 keeps 90 days. A stored day has all zones of the types that the cluster's pools had then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from slurmplugins.model import records
from toolkit.accounting.days import DAY
from toolkit.accounting.records import read_pages
from toolkit.prices import SpotHistory, parse_usd, read_history

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from decimal import Decimal

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_s3 import S3Client

    from slurmplugins.model.records import RecordKey
    from toolkit.accounting.records import Buckets, Page
    from toolkit.accounting.set_aside import SetAside

    Point = tuple[str, str, int, Decimal | None]


def read(
    buckets: Buckets,
    ec2: EC2Client,
    region: str,
    types: Collection[str],
    window: tuple[int, int],
) -> tuple[SpotHistory, list[SetAside]]:
    """Return the price changes of the window.

    The stored days that can't be read come beside them.
    """
    if not types:
        return SpotHistory(), []
    since, until = window
    s3, bucket = buckets.s3, buckets.records
    pages, set_aside = read_pages(s3, bucket, _keys(s3, bucket, region, since, until))
    points = [point for page in pages for point in _points(page, types)]
    missing = _missing(pages, types, since, until)
    if missing:
        missing_types, start, end = missing
        points += _flat(read_history(ec2, missing_types, start, end))
    return SpotHistory.from_points(points), set_aside


def _keys(s3: S3Client, bucket: str, region: str, since: int, until: int) -> list[RecordKey]:
    if not bucket:
        return []
    prefix = f"{records.PRICES}{region}/"
    day = records.day_stamp(since - since % DAY)
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix=prefix, StartAfter=f"{prefix}{day}"
    )
    keys = []
    try:
        for page in pages:
            names = [item["Key"] for item in page.get("Contents", [])]
            found = [key for name in names if (key := records.parse_key(name)) is not None]
            keys += [key for key in found if key.since < until]
            if found and found[-1].since >= until:
                break
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":
            raise
    return keys


def _points(page: Page, types: Collection[str]) -> Iterator[Point]:
    for value in page.lines():
        match value:
            case [str(instance_type), str(zone), int(second), str(usd)] if instance_type in types:
                yield instance_type, zone, second, parse_usd(usd)


def _missing(
    pages: Iterable[Page], types: Collection[str], since: int, until: int
) -> tuple[set[str], int, int] | None:
    """Return the types and the time that no stored day has."""
    days_by_type: dict[str, set[int]] = {name: set() for name in types}
    for page in pages:
        for name in page.header.get("types", ()):
            if name in days_by_type:
                days_by_type[name].add(page.since)
    needed = range(since - since % DAY, until, DAY)
    gaps = {name: [day for day in needed if day not in days] for name, days in days_by_type.items()}
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
