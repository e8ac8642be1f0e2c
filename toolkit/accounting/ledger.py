"""The instance ledger: records that reconcile wrote to S3, completed by EC2's answer.

reconcile writes one object for each instance. DescribeInstances adds the instances that
reconcile has not seen yet, and for an hour the ones that ended since. If the two differ
on an end, the one that knows an end wins. An interruption that EC2 reports wins over the
recorded cause.

An object that is no record, or a copy of one, is set aside. An instance is in the sum
once, whatever lies in the bucket.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from slurmplugins.cloud import ec2_messages, tags
from slurmplugins.model.instance import ROLE_HEAD, SPOT_INTERRUPTION_CODES, EndCause, Lifecycle
from slurmplugins.reconciler import instance_ledger
from toolkit.accounting import disagreements, objects
from toolkit.accounting.errors import LedgerError
from toolkit.accounting.instances import HEAD_POOL, Instance
from toolkit.accounting.set_aside import SetAside
from toolkit.prices import parse_usd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_s3 import S3Client

    from slurmplugins.reconciler.instance_ledger import LedgerEntry
    from toolkit.accounting.cloudtrail import Trail

PREFIX = instance_ledger.PREFIX


@dataclass(frozen=True, slots=True)
class Record:
    """A readable object of the bucket."""

    instance: Instance
    key: str
    written_at: int

    @property
    def is_original(self) -> bool:
        """Return whether its key is its instance's; a copy has another."""
        return self.key.endswith(instance_ledger.object_key(self.instance.instance_id))


@dataclass(frozen=True, slots=True)
class LedgerContent:
    """The instances of ledger and EC2, and the objects that are not among them."""

    instances: tuple[Instance, ...]  # by launch, each once
    set_aside: tuple[SetAside, ...] = ()
    disagreements: tuple[str, ...] = ()  # sentences for the report's notes


def read(
    s3: S3Client, bucket: str, ec2: EC2Client, cluster: str, *, trail: Trail | None = None
) -> LedgerContent:
    """Return every instance that the cluster ever had.

    Starts and ends that no pass saw are CloudTrail's, if its events are given.
    """
    records, set_aside = from_bucket(s3, bucket)
    return combine(records, set_aside, from_ec2(ec2, cluster), trail=trail)


def combine(
    records: Iterable[Record],
    set_aside: Iterable[SetAside],
    ec2_instances: Sequence[Instance],
    *,
    trail: Trail | None = None,
    window: tuple[int, int] | None = None,
) -> LedgerContent:
    """Return the records, completed by EC2's answer and CloudTrail's events.

    What disagrees with CloudTrail is told of the instances that lived in the window.
    """
    known_keys = {instance_ledger.object_key(item.instance_id) for item in ec2_instances}
    originals, copies = _without_copies(records)
    instances = merge(originals, ec2_instances)
    sentences = disagreements.limited(_disagreements(originals, ec2_instances, trail))
    if trail is not None:
        lived = [item for item in instances if window is None or item.lived_in(*window)]
        sentences += disagreements.limited(_trail_disagreements(originals, lived, trail))
        instances = [trail.completed(instance) for instance in instances]
    return LedgerContent(
        tuple(instances),
        (
            *(replace(item, has_unknown_cost=item.name not in known_keys) for item in set_aside),
            *copies,
        ),
        tuple(sentences),
    )


def _disagreements(
    records: Iterable[Record], ec2_instances: Iterable[Instance], trail: Trail | None
) -> Iterator[str]:
    """Yield what ledger and EC2 say differently.

    EC2 tells the last start alone.
    """
    ec2_by_id = {instance.instance_id: instance for instance in ec2_instances}
    for record in records:
        instance = record.instance
        ec2_instance = ec2_by_id.get(instance.instance_id)
        if ec2_instance is not None:
            exact = instance if trail is None else trail.with_stops(instance)
            yield from disagreements.with_ec2(exact, ec2_instance)


def _trail_disagreements(
    records: Iterable[Record], instances: Iterable[Instance], trail: Trail
) -> Iterator[str]:
    """Yield what CloudTrail says differently of the instances of ledger and EC2."""
    recorded = {record.instance.instance_id: record.instance for record in records}
    for instance in instances:
        own = recorded.get(instance.instance_id)
        source = disagreements.EC2 if own is None else disagreements.LEDGER
        has_end = own is not None and own.end_seen and own.ended is not None
        end_source = disagreements.LEDGER if has_end else disagreements.EC2
        yield from trail.disagreements(instance, source, end_source)


def from_bucket(
    s3: S3Client, bucket: str, prefix: str = PREFIX, *, changed_since: int = 0
) -> tuple[list[Record], list[SetAside]]:
    """Return the records that changed since then. Raises ClientError.

    The objects that are none, or that S3 refuses, come beside them. A bucket that does not
    exist has none.
    """
    listed = [
        (key, written_at)
        for key, written_at in _listed(s3, bucket, prefix)
        if key.endswith(".json") and written_at >= changed_since
    ]

    records, set_aside = [], []
    bodies = objects.fetched(s3, bucket, [key for key, _ in listed])
    for (key, written_at), body in zip(listed, bodies, strict=True):
        if isinstance(body, objects.Refusal):
            set_aside.append(body.set_aside(key))
            continue
        try:
            instance = parse(body.decode(errors="replace"), key)
        except LedgerError:
            set_aside.append(SetAside(key, "no record of an instance"))
        else:
            records.append(Record(instance, key, written_at))
    return records, set_aside


def _listed(s3: S3Client, bucket: str, prefix: str) -> list[tuple[str, int]]:
    if not bucket:
        return []
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    try:
        return [
            (item["Key"], int(item["LastModified"].timestamp()))
            for page in pages
            for item in page.get("Contents", [])
        ]
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucket":
            raise
        return []


def _without_copies(records: Iterable[Record]) -> tuple[list[Record], list[SetAside]]:
    """Return one record for each instance, the original if there is one."""
    by_id: dict[str, Record] = {}
    copies = []
    for record in sorted(records, key=lambda item: (not item.is_original, item.key)):
        first = by_id.setdefault(record.instance.instance_id, record)
        if first is not record:
            reason = f"a second record of {record.instance.instance_id}"
            copies.append(SetAside(record.key, reason, has_unknown_cost=False))
    return list(by_id.values()), copies


def from_ec2(ec2: EC2Client, cluster: str) -> list[Instance]:
    """Return the instances that EC2 still knows by the cluster's tag."""
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": f"tag:{tags.CLUSTER}", "Values": [cluster]}]
    )
    return [
        parse_description(item)
        for page in pages
        for reservation in page["Reservations"]
        for item in reservation.get("Instances", [])
    ]


def merge(records: Iterable[Record], ec2_instances: Iterable[Instance]) -> list[Instance]:
    """Return one list, each instance once.

    A recorded instance may lack an end although EC2 no longer knows it. It ended some
    time after its record was last written, which is then `seen_at`.
    """
    ec2_by_id = {instance.instance_id: instance for instance in ec2_instances}
    merged = []
    for record in records:
        instance, written_at = record.instance, record.written_at
        ec2_instance = ec2_by_id.pop(instance.instance_id, None)
        if ec2_instance is not None:
            merged.append(_complete(instance, ec2_instance, written_at))
        elif instance.ended is None:
            merged.append(replace(instance, end_seen=False, seen_at=written_at))
        else:
            merged.append(instance)
    merged.extend(ec2_by_id.values())
    return sorted(merged, key=lambda instance: (instance.launched, instance.instance_id))


def _complete(recorded: Instance, ec2_instance: Instance, written_at: int) -> Instance:
    ended, end_seen, seen_at = recorded.ended, recorded.end_seen, recorded.seen_at
    if not end_seen and ec2_instance.end_seen:
        # A pass that noticed the end late knows less than EC2.
        ended, end_seen = ec2_instance.ended, True
    elif ended is None and not ec2_instance.end_seen:
        end_seen, seen_at = False, written_at
    elif ended is None:
        ended = ec2_instance.ended
    end_cause = recorded.end_cause or ec2_instance.end_cause
    if ec2_instance.end_cause == EndCause.INTERRUPTION:
        end_cause = EndCause.INTERRUPTION
    # The record may be older than the tags that name the node.
    if ec2_instance.node and (not recorded.node or disagreements.is_older(recorded)):
        recorded = replace(recorded, node=ec2_instance.node)
    return replace(recorded, ended=ended, end_cause=end_cause, end_seen=end_seen, seen_at=seen_at)


_OPTIONAL: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("node", "pool", "partition", "attempt", "zone", "price"), ""),
    **dict.fromkeys(("running_at", "ended_at", "end_cause"), None),
}


def parse(text: str, key: str) -> Instance:
    """Parse one ledger object. Raises LedgerError."""
    try:
        # An older head's record may lack these, or hold null.
        known = {name: value for name, value in json.loads(text).items() if value is not None}
        entry = instance_ledger.from_json({**_OPTIONAL, **known})
    except (ValueError, AttributeError, RecursionError):
        entry = None
    if entry is None or not _has_real_times(entry):
        raise LedgerError(f"instance ledger: {key} is not a record of an instance")
    return Instance(
        instance_id=entry.instance_id,
        node=entry.node,
        pool=entry.pool,
        instance_type=entry.type,
        zone=entry.zone,
        spot=entry.lifecycle == Lifecycle.SPOT,
        launched=math.floor(entry.launched_at),
        ended=None if entry.ended_at is None else math.ceil(entry.ended_at),
        end_cause=entry.end_cause or "",
        tag_price=parse_usd(entry.price),
        end_seen=entry.end_seen,
        running=None if entry.running_at is None else math.floor(entry.running_at),
        stops=tuple(
            (math.ceil(stopped_at), None if started_at is None else math.floor(started_at))
            for stopped_at, started_at in entry.stops
        ),
    )


def _has_real_times(entry: LedgerEntry) -> bool:
    times = (entry.launched_at, entry.running_at, entry.ended_at)
    return all(moment is None or moment > 0 for moment in times)


def parse_description(description: Mapping[str, Any]) -> Instance:
    """Parse one instance of DescribeInstances."""
    instance = ec2_messages.instance(description)
    launched = math.floor(instance.launched_at)
    # Not `instance.ended_at`, which a stopped instance lacks: a stopped one costs nothing either.
    ended_at = ec2_messages.ended_at(description)
    has_ended = instance.state.not_working
    return Instance(
        instance_id=instance.id,
        node=instance.node or "",
        pool=HEAD_POOL if instance.role == ROLE_HEAD else instance.pool,
        instance_type=instance.type,
        zone=instance.zone,
        spot=instance.lifecycle is Lifecycle.SPOT,
        launched=launched,
        ended=max(int(ended_at), launched) if has_ended and ended_at is not None else None,
        end_cause=EndCause.INTERRUPTION if instance.end_code in SPOT_INTERRUPTION_CODES else "",
        tag_price=parse_usd(instance.price),
        end_seen=not has_ended or ended_at is not None,
    )
