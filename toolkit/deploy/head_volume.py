"""The head node's data volume: its place in the stack, its tag and its snapshots.

It holds Slurm's state and the databases. The instance is replaced, the volume stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurmplugins.cloud import tags
from toolkit.deploy import names

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig

ATTACHMENT = "HeadDataAttachment"
PREFIX = "HeadData"
DEVICE = "/dev/sdf"  # EC2's name for the attachment; instances see an NVMe device
ROLE = "head-data"  # the value of the volume's tag toolkit:role
KIND = "AWS::EC2::Volume"
CONTENT = "Slurm's queue and state, accounting, runs of MLflow and Optuna"


def logical_id(config: ClusterConfig) -> str:
    """Return the volume's logical id, which names its zone and its snapshot.

    CloudFormation changes neither of an existing volume. Another zone or snapshot is
    another resource, so that the stack makes a new volume and keeps a snapshot of the old.
    """
    parts = (PREFIX, config.network.head_zone, config.head.data_snapshot or "")
    return "".join(names.logical_id(part) for part in parts)


def is_replaced(before: Any, after: Any) -> bool:
    """Return whether the second template has another volume than the first."""
    old, new = _volumes(before), _volumes(after)
    return bool(old) and old != new


def is_there(resources: Any) -> bool:
    """Return whether a template has a data volume."""
    return bool(_volumes(resources))


def _volumes(resources: Any) -> set[str]:
    return {name for name, body in resources.items() if body.get("Type") == KIND}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a data volume, which outlives the cluster."""

    id: str
    volume: str
    started: str  # as a date and time for people

    def __str__(self) -> str:
        return (
            f"snapshot {self.id} of the head node's data volume ({self.started}) stays:"
            f" head.data_snapshot restores it,"
            f" `aws ec2 delete-snapshot --snapshot-id {self.id}` deletes it"
        )


def snapshots(ec2: Any, config: ClusterConfig) -> tuple[Snapshot, ...]:
    """Return the cluster's snapshots of data volumes, oldest first.

    CloudFormation gives a volume's tags to the snapshot that it makes.
    """
    filters = [
        {"Name": f"tag:{tags.CLUSTER}", "Values": [config.cluster]},
        {"Name": f"tag:{tags.ROLE}", "Values": [ROLE]},
    ]
    pages = ec2.get_paginator("describe_snapshots").paginate(OwnerIds=["self"], Filters=filters)
    items = [item for page in pages for item in page["Snapshots"]]
    items.sort(key=lambda item: item["StartTime"])
    return tuple(
        Snapshot(item["SnapshotId"], item["VolumeId"], f"{item['StartTime']:%Y-%m-%d %H:%M UTC}")
        for item in items
    )
