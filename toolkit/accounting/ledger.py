"""The instance ledger: records that reconcile wrote to S3, completed by EC2's answer.

reconcile writes one object for each instance. DescribeInstances adds the instances that
reconcile has not seen yet, and for an hour the ones that ended since. If the two differ
on an end, the one that knows an end wins. EC2's own report of a reclaim wins over the
recorded cause.
"""

from __future__ import annotations

import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from slurmplugins.cloud import tags
from slurmplugins.model.instance import ROLE_HEAD
from slurmplugins.reconciler.rules import SPOT_TAKEN
from toolkit.accounting.errors import LedgerError
from toolkit.accounting.instances import HEAD_POOL, INTERRUPTION, Instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_s3 import S3Client

PREFIX = "ledger/instances/"
_READERS = 8
_GONE = frozenset({"shutting-down", "terminated", "stopping", "stopped"})
_ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def read(s3: S3Client, bucket: str, ec2: EC2Client, cluster: str) -> list[Instance]:
    """Return every instance that the cluster ever had, by launch."""
    return merge(from_bucket(s3, bucket), from_ec2(ec2, cluster))


def from_bucket(s3: S3Client, bucket: str) -> list[tuple[Instance, int]]:
    """Return the ledger's instances, each with its record's last write."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=PREFIX)
    objects = [
        (item["Key"], int(item["LastModified"].timestamp()))
        for page in pages
        for item in page.get("Contents", [])
        if item["Key"].endswith(".json")
    ]

    def fetch(key: str) -> str:
        return s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode()

    with ThreadPoolExecutor(_READERS) as pool:
        texts = pool.map(fetch, [key for key, _ in objects])
        return [
            (parse(text, key), written_at)
            for text, (key, written_at) in zip(texts, objects, strict=True)
        ]


def from_ec2(ec2: EC2Client, cluster: str) -> list[Instance]:
    """Return the instances that EC2 still knows by the cluster's tag."""
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": f"tag:{tags.CLUSTER}", "Values": [cluster]}]
    )
    return [
        described(item)
        for page in pages
        for reservation in page["Reservations"]
        for item in reservation.get("Instances", [])
    ]


def merge(
    recorded: Iterable[tuple[Instance, int]], ec2_instances: Iterable[Instance]
) -> list[Instance]:
    """Return one list, each instance once.

    A recorded instance may lack an end although EC2 no longer knows it. It ended some
    time after its record was last written: that moment stands in for its end, and
    `end_seen` is False.
    """
    ec2_by_id = {instance.instance_id: instance for instance in ec2_instances}
    merged = []
    for instance, written_at in recorded:
        ec2_instance = ec2_by_id.pop(instance.instance_id, None)
        if ec2_instance is not None:
            merged.append(_complete(instance, ec2_instance, written_at))
        elif instance.ended is None:
            end = max(written_at, instance.launched)
            merged.append(replace(instance, ended=end, end_seen=False))
        else:
            merged.append(instance)
    merged.extend(ec2_by_id.values())
    return sorted(merged, key=lambda instance: (instance.launched, instance.instance_id))


def _complete(recorded: Instance, ec2_instance: Instance, written_at: int) -> Instance:
    ended, end_seen = recorded.ended, True
    if ended is None and not ec2_instance.end_seen:
        ended, end_seen = max(written_at, recorded.launched), False
    elif ended is None:
        ended = ec2_instance.ended
    end_cause = (
        INTERRUPTION
        if ec2_instance.end_cause == INTERRUPTION
        else recorded.end_cause or ec2_instance.end_cause
    )
    # The record may be older than the tags that name the node.
    node = recorded.node or ec2_instance.node
    return replace(recorded, node=node, ended=ended, end_cause=end_cause, end_seen=end_seen)


def parse(text: str, key: str) -> Instance:
    """Parse one ledger object. Raises LedgerError.

    Unknown keys are ignored; a missing key is an error that names the object.
    """
    try:
        data: dict[str, Any] = json.loads(text)
        return Instance(
            instance_id=data["instance_id"],
            node=data.get("node") or "",
            pool=data.get("pool") or "",
            instance_type=data["type"],
            zone=data.get("zone") or "",
            spot=data["lifecycle"] == "spot",
            launched=math.floor(data["launched_at"]),
            ended=None if data.get("ended_at") is None else math.ceil(data["ended_at"]),
            end_cause=data.get("end_cause") or "",
            tag_price=_price(data.get("price")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(
            f"{key}: {type(error).__name__} {error}",
            next_step="delete or mend the object; the report would be wrong without it",
        ) from error


def described(item: Mapping[str, Any]) -> Instance:
    """Parse one instance of DescribeInstances.

    Its node is empty unless its tags name it.
    """
    kept = {tag["Key"]: tag["Value"] for tag in item.get("Tags", [])}
    role, pool = kept.get(tags.ROLE), kept.get(tags.POOL, "")
    gone = item["State"]["Name"] in _GONE
    ended = _ended_at(item.get("StateTransitionReason", "")) if gone else None
    launched = math.floor(item["LaunchTime"].timestamp())
    reclaimed = item.get("StateReason", {}).get("Code") in SPOT_TAKEN
    return Instance(
        instance_id=item["InstanceId"],
        node=tags.node_of(kept, int(item.get("AmiLaunchIndex", 0)), item["InstanceId"]) or "",
        pool=HEAD_POOL if role == ROLE_HEAD else pool,
        instance_type=item["InstanceType"],
        zone=item.get("Placement", {}).get("AvailabilityZone", ""),
        spot=item.get("InstanceLifecycle") == "spot",
        launched=launched,
        ended=max(ended or launched, launched) if gone else None,
        end_cause=INTERRUPTION if reclaimed else "",
        tag_price=_price(tags.price_of(kept, item["InstanceType"])),
        end_seen=not gone or ended is not None,
    )


def _ended_at(reason: str) -> int | None:
    """Parse `User initiated (2026-11-21 10:00:00 GMT)` to epoch seconds."""
    at = _ENDED_AT.search(reason)
    if at is None:
        return None
    return int(datetime.strptime(at[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp())


def _price(text: str | None) -> Decimal | None:
    try:
        return Decimal(text) if text else None
    except InvalidOperation:
        return None
