"""EBS volumes: attached to one instance of their zone at a time, with content that stays.

moto attaches a volume anywhere, also twice, and keeps no content. Here an instance keeps a
volume that it has mounted, and DetachVolume waits for it, as on EC2:
https://docs.aws.amazon.com/ebs/latest/userguide/ebs-detaching-volume.html
"""

# ruff: noqa: SLF001 - moto has no other way to read and write these

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from moto.core.responses import ActionResult
from moto.ec2.models import EC2Backend
from moto.ec2.responses import EC2Response

from toolkit.local.aws.aws_errors import ec2_error

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.local.aws.instance_tables import LocalInstance, Tables
    from toolkit.local.aws.moto_patches import Patches

_GIB = 1 << 30
_ATTACHABLE = ("running", "stopped")


class Volumes:
    """Attaches, detaches, grows, copies and deletes volumes."""

    def __init__(self, tables: Tables, root: Path) -> None:
        """Keep volumes and snapshots below `root`, a sparse file each.

        A volume has no file before it is attached for the first time.
        """
        self._tables = tables
        self._root = root

    def install(self, patches: Patches) -> None:
        """Put this in place of moto's attachments, and give its volumes content."""
        self._install_attachments(patches)
        self._install_content(patches)

    def _install_attachments(self, patches: Patches) -> None:
        volumes = self

        def attach_volume(response: Any) -> Any:
            response.error_on_dryrun()
            volume_id, instance_id, device = map(
                response._get_param, ("VolumeId", "InstanceId", "Device")
            )
            attachment = volumes.attach(response.ec2_backend, volume_id, instance_id, device)
            return _answer(attachment, "attaching")

        def detach_volume(response: Any) -> Any:
            response.error_on_dryrun()
            attachment = volumes.detach(response.ec2_backend, response._get_param("VolumeId"))
            return _answer(attachment, "detaching")

        patches.replace(EC2Response, "attach_volume", attach_volume)
        patches.replace(EC2Response, "detach_volume", detach_volume)

    def _install_content(self, patches: Patches) -> None:
        volumes = self
        original: dict[str, Any] = {}

        def delete_volume(backend: Any, volume_id: str) -> Any:
            volume = original["delete_volume"](backend, volume_id)
            volumes.file(volume_id).unlink(missing_ok=True)
            return volume

        def modify_volume(
            backend: Any, volume_id: str, target_size: Any = None, *more: Any, **named: Any
        ) -> Any:
            volumes.check_growth(backend.get_volume(volume_id), target_size)
            volume = original["modify_volume"](backend, volume_id, target_size, *more, **named)
            volumes.grow(volume)
            return volume

        def create_snapshot(backend: Any, volume_id: str, *more: Any, **named: Any) -> Any:
            snapshot = original["create_snapshot"](backend, volume_id, *more, **named)
            _copy(volumes.file(volume_id), volumes.file(snapshot.id))
            return snapshot

        def delete_snapshot(backend: Any, snapshot_id: str) -> Any:
            snapshot = original["delete_snapshot"](backend, snapshot_id)
            volumes.file(snapshot_id).unlink(missing_ok=True)
            return snapshot

        for method in (delete_volume, modify_volume, create_snapshot, delete_snapshot):
            name = method.__name__
            original[name] = getattr(EC2Backend, name)
            patches.replace(EC2Backend, name, method)

    def file(self, resource_id: str) -> Path:
        """Return the file of a volume's or snapshot's content."""
        return self._root / f"{resource_id}.img"

    def attach(self, backend: Any, volume_id: str, instance_id: str, device: str) -> Any:
        """Attach a volume, or refuse as EC2 does; return the attachment."""
        volume, instance = backend.get_volume(volume_id), self._tables.instance(instance_id)
        _check_attachable(volume, instance, device)
        attachment = backend.attach_volume(volume_id, instance_id, device)
        self._fill(volume)
        instance.volumes[volume_id] = int(volume.size)
        return attachment

    def detach(self, backend: Any, volume_id: str) -> Any:
        """Begin to detach a volume; return the attachment.

        It ends when the machine has not mounted the volume, or is off.
        """
        volume = backend.get_volume(volume_id)
        attachment = volume.attachment
        if attachment is None:
            message = f"Volume '{volume_id}' is in the 'available' state."
            raise ec2_error("IncorrectState", message)
        instance = self._tables.instance(attachment.instance.id)
        if volume_id not in instance.volumes:
            message = f"Unable to detach root volume '{volume_id}' from instance '{instance.id}'"
            raise ec2_error("OperationNotPermitted", message)
        attachment.status = "detaching"
        instance.detaching.add(volume_id)
        return attachment

    def check_growth(self, volume: Any, gib: Any) -> None:
        """Refuse a smaller size."""
        if gib and int(gib) < int(volume.size):
            message = (
                f"New size cannot be smaller than existing size of {volume.size} GiB"
                f" for volume {volume.id}"
            )
            raise ec2_error("InvalidParameterValue", message)

    def grow(self, volume: Any) -> None:
        """Give the volume's file its new size, and tell its instance."""
        if self.file(volume.id).exists():
            self._fill(volume)
        attachment = volume.attachment
        instance = self._tables.instances.get(attachment.instance.id) if attachment else None
        if instance is not None and volume.id in instance.volumes:
            instance.volumes[volume.id] = int(volume.size)

    def _fill(self, volume: Any) -> None:
        """Make the file that a volume lacks, from its snapshot or empty."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self.file(volume.id)
        if not file.exists() and volume.snapshot_id:
            _copy(self.file(volume.snapshot_id), file)
        with file.open("ab") as content:
            content.truncate(int(volume.size) * _GIB)


def release(instance: LocalInstance, volume_id: str) -> None:
    """Record that a volume is detached."""
    instance.volumes.pop(volume_id, None)
    instance.detaching.discard(volume_id)
    backend = instance.row.ec2_backend
    volume = backend.volumes.get(volume_id)
    if volume is not None and volume.attachment is not None:
        backend.detach_volume(volume_id, instance.id, volume.attachment.device)


def _check_attachable(volume: Any, instance: LocalInstance, device: str) -> None:
    if volume.attachment is not None:
        raise ec2_error("VolumeInUse", f"{volume.id} is already attached to an instance")
    if instance.state not in _ATTACHABLE:
        raise ec2_error("IncorrectState", f"Instance '{instance.id}' is not 'running'.")
    if volume.zone.name != instance.pool.zone:
        message = (
            f"The volume '{volume.id}' is not in the same availability zone as instance"
            f" '{instance.id}'"
        )
        raise ec2_error("InvalidVolume.ZoneMismatch", message)
    if device in instance.row.block_device_mapping:
        message = (
            f"Invalid value '{device}' for unixDevice. Attachment point {device} is already in use"
        )
        raise ec2_error("InvalidParameterValue", message)


def _answer(attachment: Any, state: str) -> Any:
    return ActionResult(
        {
            "VolumeId": attachment.volume.id,
            "InstanceId": attachment.instance.id,
            "Device": attachment.device,
            "State": state,
            "AttachTime": attachment.attach_time,
        }
    )


def _copy(source: Path, dest: Path) -> None:
    """Copy a sparse file; a volume that was never attached has none."""
    if source.exists():
        new = dest.with_suffix(".new")
        argv = [shutil.which("cp") or "cp", "--sparse=always", "--reflink=auto"]
        subprocess.run([*argv, str(source), str(new)], check=True)
        new.rename(dest)
