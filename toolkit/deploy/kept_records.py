"""The instance ledger, copied to where it outlives its cluster, and back."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from slurmplugins.model import records
from slurmplugins.model.instance import EndCause
from slurmplugins.reconciler.instance_ledger import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

RECORDS = records.PREFIX
_AT_ONCE = 8


def keep(
    s3: S3Client, cluster: str, backups: str, now: float, written_until: float | None = None
) -> int:
    """Copy the ledger entries that no page has; return their number.

    The pages have all that changed before `written_until`. Instances have just been
    terminated: an entry without an end ends now.
    """
    source, target = (cluster, PREFIX), (backups, f"{RECORDS}{PREFIX}")
    return _copy(s3, source, target, lambda _: now, paged_until=written_until)


def bring_back(s3: S3Client, backups: str, cluster: str) -> int:
    """Copy kept records to a ledger; return their number.

    A kept record replaces one of the same instance. EC2 lists an ended instance for an hour, and a
    new cluster of the same name makes a poorer record of it.
    """
    source = (backups, f"{RECORDS}{PREFIX}")
    return _copy(s3, source, (cluster, PREFIX), lambda written: written, replaces=True)


def take_over(s3: S3Client, old_cluster: str, cluster: str) -> int:
    """Copy another cluster's ledger; return the new entries' number."""
    return _copy(s3, (old_cluster, PREFIX), (cluster, PREFIX), lambda written: written)


def copy_pages(s3: S3Client, source: str, target: str) -> int:
    """Copy the pages of instances between buckets of backups; return their number."""
    present = {key for key, _ in _listed(s3, target, records.INSTANCES)}
    wanted = [key for key, _ in _listed(s3, source, records.INSTANCES) if key not in present]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda key: s3.copy({"Bucket": source, "Key": key}, target, key), wanted))
    return len(wanted)


def _copy(
    s3: S3Client,
    source: tuple[str, str],
    target: tuple[str, str],
    end_of: Callable[[float], float],
    *,
    replaces: bool = False,
    paged_until: float | None = None,
) -> int:
    """Copy the entries that the target lacks, or all.

    Entries that ended and were written before `paged_until` are in pages of records.

    `end_of` gives the end of an instance that has none, by the time of its entry's last write. A
    copy is written later, and that time is what the report takes for such an end.
    """
    present = () if replaces else _listed(s3, *target)
    there = {key.removeprefix(target[1]) for key, _ in present}
    wanted = [
        (key.removeprefix(source[1]), written)
        for key, written in _listed(s3, *source)
        if key.removeprefix(source[1]) not in there
    ]
    surely_paged = 0.0 if paged_until is None else paged_until - records.CLOCKS_DIFFER

    def copy(entry: tuple[str, float]) -> bool:
        name, written = entry
        body = s3.get_object(Bucket=source[0], Key=f"{source[1]}{name}")["Body"].read()
        ended = with_end(body, end_of(written))
        if written < surely_paged and ended == body:
            return False
        s3.put_object(Bucket=target[0], Key=f"{target[1]}{name}", Body=ended)
        return True

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return sum(pool.map(copy, wanted))


def with_end(entry: bytes, moment: float) -> bytes:
    """Return a ledger entry that has an end.

    One that can't be read stays as it is.
    """
    try:
        value = json.loads(entry)
    except ValueError:
        return entry
    if not isinstance(value, dict) or value.get("ended_at") is not None:
        return entry
    launched_at = value.get("launched_at")
    first = launched_at if isinstance(launched_at, int | float) else moment
    cause = value.get("end_cause") or EndCause.UNKNOWN.value
    return json.dumps({**value, "ended_at": max(moment, first), "end_cause": cause}).encode()


def _listed(s3: S3Client, bucket: str, prefix: str) -> list[tuple[str, float]]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [
        (item["Key"], item["LastModified"].timestamp())
        for page in pages
        for item in page.get("Contents", [])
    ]
