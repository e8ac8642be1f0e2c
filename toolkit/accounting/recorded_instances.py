"""The instances of pages of records, where one object has many lives.

The instance ledger has one object for each instance there ever was. A report reads it only for what
no page has. EC2 lists an instance for about an hour after its end. Pages are younger than that
while the head works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.model.records import CLOCKS_DIFFER, PREFIX
from slurmplugins.reconciler import instance_ledger
from toolkit.accounting import ledger
from toolkit.accounting.errors import LedgerError
from toolkit.accounting.set_aside import SetAside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_ec2 import EC2Client

    from toolkit.accounting.cloudtrail import Trail
    from toolkit.accounting.ledger import LedgerContent, Record
    from toolkit.accounting.records import Buckets, RecordedLine, Records

EC2_REMEMBERS: Final = 3000
"""Seconds after its end for which EC2 surely lists an instance: it says about an hour."""
KEPT: Final = f"{PREFIX}{ledger.PREFIX}"
"""The entries that `destroy` kept, in the bucket of backups."""


def read(
    records: Records,
    buckets: Buckets,
    ec2: EC2Client,
    cluster: str,
    window: tuple[int, int],
    *,
    now: int,
    trail: Trail | None = None,
) -> LedgerContent:
    """Return the instances that a report of the window may need."""
    s3, own, kept = buckets.s3, buckets.own, buckets.records
    since, until = window
    recorded = records.instances(since, until)
    from_pages, damaged_lines = _of_lines(recorded.lines)
    newest: list[Record] = []
    damaged_objects: list[SetAside] = []
    if recorded.reach is None or recorded.reach + EC2_REMEMBERS < min(now, until + EC2_REMEMBERS):
        changed = 0 if recorded.reach is None else recorded.reach - CLOCKS_DIFFER
        newest, damaged_objects = ledger.from_bucket(s3, own, changed_since=changed)
    copied, damaged_copies = ledger.from_bucket(s3, kept, KEPT)
    return ledger.combine(
        [*newest, *_newer_than(newest, [*from_pages, *copied])],
        [*damaged_objects, *recorded.set_aside, *damaged_lines, *damaged_copies],
        ledger.from_ec2(ec2, cluster),
        trail=trail,
        window=window,
    )


def _newer_than(newest: Iterable[Record], others: Iterable[Record]) -> list[Record]:
    """Return a record of each instance that the newest lack.

    An end wins over none.
    """
    own_ids = {record.instance.instance_id for record in newest}
    by_id: dict[str, Record] = {}
    for record in others:
        known = by_id.get(record.instance.instance_id)
        if known is None or known.instance.ended is None:
            by_id[record.instance.instance_id] = record
    return [record for instance_id, record in by_id.items() if instance_id not in own_ids]


def _of_lines(lines: Iterable[RecordedLine]) -> tuple[list[Record], list[SetAside]]:
    """Return one record for each instance.

    A later line wins, and an end over none.
    """
    latest: dict[str, Record] = {}
    set_aside = []
    for line in lines:
        name = f"{line.key} line {line.number}"
        try:
            instance = ledger.parse(line.text, name)
        except LedgerError:
            set_aside.append(SetAside(name, "no record of an instance"))
            continue
        known = latest.get(instance.instance_id)
        if known is not None and known.instance.ended is not None and instance.ended is None:
            continue
        key = instance_ledger.object_key(instance.instance_id)
        latest[instance.instance_id] = ledger.Record(instance, key, line.written)
    return list(latest.values()), set_aside
