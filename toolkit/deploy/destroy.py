"""Deletes a cluster and verifies that nothing of it is left.

The head node is terminated first: while it lives, it launches instances for waiting
jobs. Each step may be repeated, so the next destroy finishes an interrupted one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmplugins.cloud import tags
from slurmplugins.model import records
from slurmplugins.model.instance import ROLE_HEAD
from toolkit.deploy import (
    abandoned_builders,
    filesystem_backup,
    head_volume,
    images,
    instances,
    kept_records,
    names,
    record_age,
)
from toolkit.deploy.backup_store import BackupStore
from toolkit.deploy.head_volume import Snapshot, snapshots
from toolkit.deploy.image_use import UsedImage, used_elsewhere
from toolkit.deploy.stack_events import failures, stack_status, wait_for_stack
from toolkit.deploy.storage import Bucket
from toolkit.deploy.tagged_resources import (
    DATA_VOLUME,
    FILESYSTEM,
    TaggedResource,
    delete_detached,
    find_resources,
)
from toolkit.errors import DestroyIncomplete
from toolkit.polling import Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.config import ClusterConfig
    from toolkit.deploy.backup_store import Backup
    from toolkit.deploy.images import Image
    from toolkit.deploy.session import Clients
    from toolkit.output import Phase, Reporter

INSTANCES_SECONDS = 900.0
# EC2 lists volumes and interfaces of terminated instances for a while.
VERIFY_SECONDS = 120.0
TERMINATE_BATCH = 200
# What people lose with a resource of these kinds.
LOSSES = {
    FILESYSTEM: ": homes, datasets, checkpoints, everything in /shared, and its daily backups",
    DATA_VOLUME: f": {head_volume.CONTENT}; a snapshot of it stays",
}


@dataclass(frozen=True, slots=True)
class Inventory:
    """The resources to delete."""

    stack: str
    instances: tuple[str, ...]
    bucket: bool
    other_resources: tuple[TaggedResource, ...]
    images: tuple[Image, ...]
    builders: tuple[str, ...] = ()
    kept_images: tuple[Image, ...] = ()  # images that stay
    images_stack: str = ""
    used_images: tuple[UsedImage, ...] = ()  # stay, since other clusters need them
    backups: tuple[Backup, ...] = ()
    backup_bucket: str = ""  # if it exists
    records: int = 0  # objects there with attempts, instances and prices
    with_backups: bool = False  # they are deleted too
    final_backup: bool = False  # of the filesystem, before it is deleted

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to delete."""
        own = self.stack or self.instances or self.bucket or self.other_resources
        backups = self.with_backups and self.backup_bucket
        return not (own or backups or self.images or self.builders or self.images_stack)

    def text(self) -> str:
        """Return the inventory as text for people."""
        lines = [f"- stack ({self.stack})"] if self.stack else []
        lines += [f"- {len(self.instances)} instances"] if self.instances else []
        lines += (
            [f"- the bucket: logs, artifacts of runs{self._ledger_text}"] if self.bucket else []
        )
        if self.with_backups and self.backup_bucket:
            lines.append(f"- {self._backups_text}")
            lines.append(
                f"- {self.records} records of jobs, instances and prices there: no report of this"
                " cluster will be possible"
            )
        lines += [
            f"- {item}{self._loss(item)}"
            for item in self.other_resources
            if not self._has_own_line(item)
        ]
        lines += [f"- image {image.name}" for image in self.images]
        lines += [f"- image builder {builder}" for builder in self.builders]
        lines += (
            [f"- stack {names.IMAGES_STACK} ({self.images_stack})"] if self.images_stack else []
        )
        return "\n".join(lines) or "nothing to destroy"

    @property
    def kept_images_text(self) -> str:
        """Return lines on the images that stay.

        Each says why, or how to delete it: they cost a little. Empty without any.
        """
        lines = [str(used) for used in self.used_images]
        if self.kept_images:
            image_names = ", ".join(image.name for image in self.kept_images)
            hint = "toolkit destroy --images deletes them too"
            lines.append(f"images that are kept: {image_names} ({hint})")
        return "\n".join(lines)

    @property
    def kept_backups_text(self) -> str:
        """Return a line on the backups that stay; empty without any."""
        if self.with_backups or not self.backup_bucket:
            return ""
        return (
            f"kept: {self._backups_text}; `toolkit backup restore` brings one into a cluster\n"
            f"kept: {self.records} records of jobs, instances and prices: `toolkit report` reads"
            " them (toolkit destroy --backups deletes both)"
        )

    @property
    def _ledger_text(self) -> str:
        return (
            ", instance ledger"
            if self.with_backups
            else "; the instance ledger stays in the bucket of backups"
        )

    @property
    def _backups_text(self) -> str:
        newest = f", the newest of {self.backups[-1].time}" if self.backups else ""
        count = len(self.backups)
        noun = "backup" if count == 1 else "backups"
        return f"{count} {noun} in s3://{self.backup_bucket}{newest}"

    def _loss(self, item: TaggedResource) -> str:
        backup = item.kind == FILESYSTEM and self.final_backup
        return LOSSES.get(item.kind, "") + ("; a backup of it stays" if backup else "")

    def _has_own_line(self, item: TaggedResource) -> bool:
        """Return whether another line covers this resource.

        A part of the stack that holds data has a line of its own.
        """
        own_kinds = {"instance", "bucket"}
        return item.kind in own_kinds or (bool(self.stack) and item.kind not in LOSSES)


class Destroyer:
    """Deletes one cluster."""

    def __init__(
        self,
        config: ClusterConfig,
        clients: Clients,
        report: Reporter,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        backups: BackupStore | None = None,
    ) -> None:
        self._config = config
        self._backups = backups or BackupStore(config, clients, report)
        self._clients = clients
        self._report = report
        self._sleep = sleep
        self._clock = clock
        self._now = now
        self._bucket = Bucket(clients.client("s3"), names.bucket(config, clients.account))

    def inventory(self, *, with_images: bool, with_backups: bool = False) -> Inventory:
        """Return the resources that exist."""
        free_images, used_images = self._images()
        other_cluster = bool(used_images)
        cloudformation = self._clients.client("cloudformation")
        has_backups = self._backups.bucket.exists()
        return Inventory(
            stack=stack_status(cloudformation, names.stack(self._config)),
            instances=tuple(self._instance_ids()),
            bucket=self._bucket.exists(),
            other_resources=find_resources(self._clients, self._config),
            images=free_images if with_images else (),
            builders=self._builders(with_images=with_images and not other_cluster),
            kept_images=()
            if with_images
            else (*free_images, *(used.image for used in used_images)),
            # A failed build or an interrupted destroy leaves this stack without an image.
            images_stack=stack_status(cloudformation, names.IMAGES_STACK)
            if with_images and not other_cluster
            else "",
            used_images=used_images if with_images else (),
            backups=self._backups.find() if has_backups else (),
            backup_bucket=self._backups.bucket.name if has_backups else "",
            records=self._record_count() if has_backups else 0,
            with_backups=with_backups,
            final_backup=self._config.shared.final_backup,
        )

    def _record_count(self) -> int:
        return sum(1 for _ in self._backups.bucket.sizes(records.PREFIX))

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return the snapshots of the head node's data volumes, which stay."""
        return snapshots(self._clients.client("ec2"), self._config)

    def destroy(self, *, with_images: bool, with_backups: bool = False) -> None:
        """Delete everything.

        May be repeated. Raises DestroyIncomplete with the resources that still exist.
        """
        self._unprotect_stack()  # first: without the right to it, nothing is lost
        with self._report.phase("Terminating instances") as phase:
            self._terminate_instances(phase)
        abandoned_builders.terminate(
            self._clients.client("ec2"),
            self._builders(with_images=with_images and not self._images()[1]),
        )
        if self._config.shared.final_backup:
            filesystem_backup.make(
                self._clients.client("fsx"), self._config, self._report, self._sleep, self._clock
            )
        if self._bucket.exists():
            if not with_backups:
                self._keep_records()
            with self._report.phase("Emptying the bucket") as phase:
                phase.result(f"{self._bucket.empty()} objects")
        with self._report.phase(f"Deleting stack {names.stack(self._config)}") as phase:
            self._delete_stack(names.stack(self._config), phase)
        if with_backups:
            with self._report.phase("Deleting the backups") as phase:
                self._delete_backups(phase)
        if with_images:
            with self._report.phase("Deleting images") as phase:
                self._delete_images(phase)
        with self._report.phase("Checking that nothing is left") as phase:
            self._verify(phase)

    def _images(self) -> tuple[tuple[Image, ...], tuple[UsedImage, ...]]:
        """Return the images that no other cluster uses, and the others."""
        ec2 = self._clients.client("ec2")
        existing = tuple(images.find(ec2, _image_names()).values())
        used_images = used_elsewhere(ec2, existing, self._config.cluster)
        used_ids = {used.image.id for used in used_images}
        return tuple(item for item in existing if item.id not in used_ids), used_images

    def _instance_ids(self) -> list[str]:
        own_tag = {tags.CLUSTER: self._config.cluster}
        cluster = instances.find(self._clients.client("ec2"), own_tag, instances.NOT_TERMINATED)
        # The head node comes first.
        cluster.sort(key=lambda item: instances.tag_values(item).get(tags.ROLE) != ROLE_HEAD)
        return [item["InstanceId"] for item in cluster]

    def _builders(self, *, with_images: bool) -> tuple[str, ...]:
        """Return the abandoned builders; all builders if no image is to stay."""
        ec2 = self._clients.client("ec2")
        if with_images:
            return tuple(abandoned_builders.find_all(ec2))
        return abandoned_builders.find_abandoned(ec2, abandoned_builders.now())

    def _terminate_instances(self, phase: Phase) -> None:
        ec2 = self._clients.client("ec2")
        wait = Wait(INSTANCES_SECONDS, self._sleep, self._clock)
        terminated_ids: set[str] = set()
        total = 0
        # Listed again each time: a launch may have been in progress when the head node ended.
        while live_ids := self._instance_ids():
            new_ids = [instance for instance in live_ids if instance not in terminated_ids]
            for start in range(0, len(new_ids), TERMINATE_BATCH):
                ec2.terminate_instances(InstanceIds=new_ids[start : start + TERMINATE_BATCH])
            terminated_ids.update(new_ids)
            total = len(terminated_ids)
            phase.update("terminating", done=total - len(live_ids), total=total)
            if wait.is_over:
                raise DestroyIncomplete(
                    f"EC2 has not terminated {', '.join(live_ids)}",
                    next_step="look at these instances in EC2, then run destroy again",
                )
            wait.pause()
        phase.result(f"{total} terminated")

    def _keep_records(self) -> None:
        """Copy the ledger to the backups, and let these stay."""
        self._backups.prepare(expires=False)
        with self._report.phase("Keeping the instance ledger with the backups") as phase:
            s3, bucket = self._clients.client("s3"), self._backups.bucket.name
            written = record_age.parse(self._bucket.read_json(records.STATUS)).instances
            entries = kept_records.keep(s3, self._bucket.name, bucket, self._now(), written)
            phase.result(f"{entries} instances that no record has yet")

    def _delete_backups(self, phase: Phase) -> None:
        if self._backups.bucket.exists():
            self._backups.bucket.empty()
        self._delete_stack(names.backups_stack(self._config), phase)

    def _unprotect_stack(self) -> None:
        cloudformation, stack = self._clients.client("cloudformation"), names.stack(self._config)
        if not stack_status(cloudformation, stack):
            return
        (described,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
        if described.get("EnableTerminationProtection"):
            cloudformation.update_termination_protection(
                StackName=described["StackId"], EnableTerminationProtection=False
            )

    def _delete_stack(self, stack: str, phase: Phase) -> None:
        cloudformation = self._clients.client("cloudformation")
        if not stack_status(cloudformation, stack):
            phase.result("none")
            return
        # By id from here on: CloudFormation forgets the name of a deleted stack.
        described = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
        stack_id = described["StackId"]
        total = len(cloudformation.describe_stack_resources(StackName=stack_id)["StackResources"])
        no_events = frozenset[str]()
        cloudformation.delete_stack(StackName=stack_id)
        status = wait_for_stack(
            cloudformation,
            stack_id,
            phase,
            total=total,
            past_events=no_events,
            sleep=self._sleep,
            clock=self._clock,
        )
        if status not in {"", "DELETE_COMPLETE"}:
            raise DestroyIncomplete(
                f"stack {stack} is {status}\n{failures(cloudformation, stack_id, no_events)}",
                next_step="mend the cause, then run destroy again",
            )

    def _delete_images(self, phase: Phase) -> None:
        """Delete the images that no other cluster uses.

        While one is used, the stack of image builds and its bucket stay for that cluster.
        """
        free_images, used_images = self._images()
        for image in free_images:
            images.delete(self._clients.client("ec2"), image)
        if not used_images:
            bucket = names.images_bucket(self._config, self._clients.account)
            store = Bucket(self._clients.client("s3"), bucket)
            if store.exists():
                store.empty()
            self._delete_stack(names.IMAGES_STACK, phase)
        kept_text = f", {len(used_images)} stay for other clusters" if used_images else ""
        phase.result(f"{len(free_images)} images{kept_text}")

    def _verify(self, phase: Phase) -> None:
        wait = Wait(VERIFY_SECONDS, self._sleep, self._clock)
        while resources := find_resources(self._clients, self._config):
            phase.update(f"{len(resources)} left")
            for item in resources:
                delete_detached(self._clients, item)
            if wait.is_over:
                resource_lines = "\n".join(f"  {item}" for item in resources)
                raise DestroyIncomplete(
                    f"these resources still exist:\n{resource_lines}",
                    next_step="run destroy again, or delete them by hand",
                )
            wait.pause()
        phase.result("nothing")


def _image_names() -> list[str]:
    return [f"toolkit-{kind}-*" for kind in names.IMAGE_KINDS]
