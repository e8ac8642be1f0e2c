"""Volumes and their attachments in stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.elastic_block_store import Volume, VolumeAttachment

from toolkit.local.aws.aws_errors import ec2_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.local.aws.moto_patches import Patches
    from toolkit.local.aws.volumes import Volumes

# What CloudFormation changes of a volume that exists:
# https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-ec2-volume.html
_FIXED = ("AvailabilityZone", "Encrypted", "KmsKeyId", "SnapshotId")
_SNAPSHOT = "Created by CloudFormation before it deleted the volume"


def install(patches: Patches, volumes: Volumes) -> None:
    """Make, change and delete both types as CloudFormation does."""

    def attach(
        _cls: Any, /, _name: str, body: Any, account_id: str, region_name: str, **_: Any
    ) -> Any:
        properties = body["Properties"]
        return volumes.attach(
            ec2_backends[account_id][region_name],
            properties["VolumeId"],
            properties["InstanceId"],
            properties["Device"],
        )

    def detach(attachment: Any, account_id: str, region_name: str) -> None:
        backend = ec2_backends[account_id][region_name]
        if is_attached(attachment) and attachment.status != "detaching":
            volumes.detach(backend, attachment.volume.id)

    patches.replace(Volume, "create_from_cloudformation_json", classmethod(_create))
    patches.replace(Volume, "update_from_cloudformation_json", classmethod(_update))
    patches.replace(Volume, "delete", _delete)
    patches.replace(VolumeAttachment, "create_from_cloudformation_json", classmethod(attach))
    patches.replace(VolumeAttachment, "delete", detach)
    patches.replace(VolumeAttachment, "physical_resource_id", property(_attachment_id))


def is_attached(attachment: Any) -> bool:
    """Return whether the volume is still attached by this attachment."""
    return attachment.volume.attachment is attachment


def snapshot(volume: Any) -> Any:
    """Make the snapshot of a deletion policy; it has the volume's tags."""
    backend = volume.ec2_backend
    made = backend.create_snapshot(volume.id, _SNAPSHOT)
    tags = backend.tags.get(volume.id, {})
    made.add_tags({key: value for key, value in tags.items() if not key.startswith("aws:")})
    return made


def _create(
    _cls: Any, /, _name: str, body: Mapping[str, Any], account_id: str, region_name: str, **_: Any
) -> Any:
    properties = body["Properties"]
    volume = ec2_backends[account_id][region_name].create_volume(
        size=properties.get("Size") and int(properties["Size"]),
        zone_name=properties["AvailabilityZone"],
        snapshot_id=properties.get("SnapshotId"),
        encrypted=bool(properties.get("Encrypted")),
        volume_type=properties.get("VolumeType"),
    )
    volume.properties = properties
    volume.add_tags({tag["Key"]: tag["Value"] for tag in properties.get("Tags") or ()})
    return volume


def _update(
    _cls: Any,
    /,
    original_resource: Any,
    new_resource_name: str,
    cloudformation_json: Mapping[str, Any],
    account_id: str,
    region_name: str,
) -> Any:
    del new_resource_name
    volume, properties = original_resource, cloudformation_json["Properties"]
    for name in _FIXED:
        if properties.get(name) != volume.properties.get(name):
            message = f"Update of {name} of volume {volume.id} is not supported"
            raise ec2_error("InvalidParameterValue", message)
    backend = ec2_backends[account_id][region_name]
    size = int(properties.get("Size") or volume.size)
    if (size, properties.get("VolumeType")) != (int(volume.size), volume.volume_type):
        backend.modify_volume(volume.id, size, properties.get("VolumeType"))
    volume.properties = properties
    volume.add_tags({tag["Key"]: tag["Value"] for tag in properties.get("Tags") or ()})
    return volume


def _delete(volume: Any, account_id: str, region_name: str) -> None:
    backend = ec2_backends[account_id][region_name]
    if volume.id in backend.volumes:
        backend.delete_volume(volume.id)


def _attachment_id(attachment: Any) -> str:
    return f"{attachment.volume.id}|{attachment.instance.id}"
