"""Writes the usage log: each state of an instance, each size of a volume or file system."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from moto.ec2.models import EC2Backend
from moto.ec2.models.amis import Ami
from moto.fsx.models import FSxBackend

from toolkit.local.billing.usage_log import Kind, UsageEvent, UsageLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.local.aws.instance_tables import LocalInstance, Reason
    from toolkit.local.aws.moto_patches import Patches


log = logging.getLogger(__name__)


class Meter:
    """Meters what costs money on AWS, from the local cloud's own events."""

    def __init__(self, log: UsageLog, wall: Callable[[], float]) -> None:
        """Write to the log, with the seconds of that clock."""
        self._log = log
        self._wall = wall
        self._is_image_made = False

    def install(self, patches: Patches) -> None:
        """End what an earlier daemon left; watch volumes and file systems.

        It wraps the layer's own methods, so it comes after them.
        """
        self._log.end_all(int(self._wall()))
        self._leave_out_images(patches)
        for name in ("create_volume", "modify_volume"):
            _wrap(patches, EC2Backend, name, after=lambda made, *_: self.record_volume(made))
        _wrap(patches, EC2Backend, "create_tags", after=self._tagged)
        _wrap(patches, EC2Backend, "delete_volume", before=self._volume_deleted)
        _wrap(
            patches,
            FSxBackend,
            "create_file_system",
            after=lambda made, *_: self.record_file_system(made),
        )
        _wrap(
            patches,
            FSxBackend,
            "file_system_changed",
            before=lambda _backend, system: self.record_file_system(system),
        )
        _wrap(patches, FSxBackend, "delete_file_system", before=self._file_system_deleted)

    def record_instance(
        self, instance: LocalInstance, state: str, reason: Reason | None, wall: float
    ) -> None:
        """Record that an instance is in a state."""
        event = UsageEvent(
            int(wall),
            instance.id,
            Kind.INSTANCE,
            state,
            region=instance.region,
            zone=instance.pool.zone,
            type=instance.pool.instance_type,
            market=instance.pool.market,
            reason=reason.code if reason else "",
            tags=instance.tags,
        )
        self._append(event)

    def record_volume(self, volume: Any, state: str = "available") -> None:
        """Record a volume as it is now."""
        if self._is_image_made:
            return
        event = UsageEvent(
            int(self._wall()),
            volume.id,
            Kind.VOLUME,
            state,
            region=volume.ec2_backend.region_name,
            zone=volume.zone.name,
            type=volume.volume_type,
            gib=int(volume.size),
            tags=dict(volume.ec2_backend.tags.get(volume.id, {})),
        )
        self._append(event)

    def record_file_system(self, system: Any, state: str = "available") -> None:
        """Record a file system as it is now."""
        lustre = system.lustre_configuration or {}
        deployment = str(lustre.get("DeploymentType") or "SCRATCH_1")
        throughput = lustre.get("PerUnitStorageThroughput")
        event = UsageEvent(
            int(self._wall()),
            system.file_system_id,
            Kind.FILE_SYSTEM,
            state,
            region=system.backend.region_name,
            zone="",
            type=f"{deployment}.{throughput}" if throughput else deployment,
            gib=int(system.storage_capacity or 0),
            tags={tag["Key"]: tag["Value"] for tag in _tags(system)},
        )
        self._append(event)

    def _leave_out_images(self, patches: Patches) -> None:
        """Leave out the volumes that moto makes for images."""
        original = Ami.__init__

        def init(ami: Any, *args: Any, **kwargs: Any) -> None:
            self._is_image_made = True
            try:
                original(ami, *args, **kwargs)
            finally:
                self._is_image_made = False

        patches.replace(Ami, "__init__", init)

    def _append(self, event: UsageEvent) -> None:
        try:
            self._log.append([event])
        except OSError:  # a full disk must not stop the cloud
            log.exception("%s is not metered", event.resource_id)

    def _tagged(self, _answer: Any, backend: Any, resource_ids: list[str], *_: Any) -> None:
        for resource_id in resource_ids:
            if resource_id in backend.volumes:
                self.record_volume(backend.volumes[resource_id])

    def _volume_deleted(self, backend: Any, volume_id: str, *_: Any) -> None:
        if volume_id in backend.volumes:
            self.record_volume(backend.volumes[volume_id], "deleted")

    def _file_system_deleted(self, backend: Any, system_id: str, *_: Any) -> None:
        if system_id in backend.file_systems:
            self.record_file_system(backend.file_systems[system_id], "deleted")


def _tags(system: Any) -> list[dict[str, str]]:
    tags: list[dict[str, str]] = system.backend.list_tags_for_resource(system.resource_arn)
    return tags


def _wrap(
    patches: Patches,
    target: Any,
    name: str,
    *,
    before: Callable[..., None] = lambda *_: None,
    after: Callable[..., None] = lambda *_: None,
) -> None:
    """Call `before` with a method's arguments, `after` with its answer too."""
    original = getattr(target, name)

    def method(*args: Any, **kwargs: Any) -> Any:
        before(*args, *kwargs.values())
        answer = original(*args, **kwargs)
        after(answer, *args, *kwargs.values())
        return answer

    patches.replace(target, name, method)
