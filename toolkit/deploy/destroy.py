"""Deletes a cluster and verifies that nothing of it is left.

The head node is terminated first: while it lives, it launches instances for waiting
jobs. Each step may be repeated, so the next destroy finishes an interrupted one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slurmplugins.cloud import tags
from slurmplugins.model.instance import ROLE_HEAD
from toolkit.deploy import abandoned_builders, images, names
from toolkit.deploy.changes import failures, stack_status, wait_for_stack
from toolkit.deploy.storage import Bucket
from toolkit.deploy.tagged_resources import Leftover, leftovers, remove
from toolkit.errors import DestroyIncomplete

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.config import ClusterConfig
    from toolkit.deploy.images import Image
    from toolkit.deploy.session import Clients
    from toolkit.output import Phase, Reporter

POLL_SECONDS = 2.0
INSTANCES_SECONDS = 900.0
# EC2 lists volumes and interfaces of terminated instances for a while.
SETTLE_SECONDS = 120.0
TERMINATE_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Inventory:
    """The resources to delete."""

    stack: str
    instances: tuple[str, ...]
    bucket: bool
    others: tuple[Leftover, ...]
    images: tuple[Image, ...]
    builders: tuple[str, ...] = ()
    kept: tuple[Image, ...] = ()  # images that stay
    images_stack: str = ""

    @property
    def nothing(self) -> bool:
        """Return whether there is nothing to delete."""
        own = self.stack or self.instances or self.bucket or self.others
        return not (own or self.images or self.builders or self.images_stack)

    def text(self) -> str:
        """Return the inventory as text for people."""
        lines = [f"- stack ({self.stack})"] if self.stack else []
        lines += [f"- {len(self.instances)} instances"] if self.instances else []
        lines += ["- the bucket: ledger, logs, artifacts of every run"] if self.bucket else []
        lines += [f"- {item}" for item in self.others if not self._told(item)]
        lines += [f"- image {image.name}" for image in self.images]
        lines += [f"- image builder {builder}" for builder in self.builders]
        lines += (
            [f"- stack {names.IMAGES_STACK} ({self.images_stack})"] if self.images_stack else []
        )
        return "\n".join(lines) or "nothing to destroy"

    @property
    def stays(self) -> str:
        """Return a line on the kept images and how to delete them.

        They cost a little. Empty without any.
        """
        if not self.kept:
            return ""
        listed = ", ".join(image.name for image in self.kept)
        return f"images that stay: {listed} (toolkit destroy --images deletes them too)"

    def _told(self, item: Leftover) -> bool:
        """Return whether another line covers this resource.

        A part of the stack that holds data has a line of its own.
        """
        told = {"instance", "bucket"}
        return item.kind in told or (bool(self.stack) and item.kind != "filesystem")


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
    ) -> None:
        self._config = config
        self._clients = clients
        self._report = report
        self._sleep = sleep
        self._clock = clock
        self._bucket = Bucket(clients.client("s3"), names.bucket(config, clients.account))

    def inventory(self, *, with_images: bool) -> Inventory:
        """Return the resources that exist."""
        found = tuple(images.find(self._clients.client("ec2"), _image_names()).values())
        cloudformation = self._clients.client("cloudformation")
        return Inventory(
            stack=stack_status(cloudformation, names.stack(self._config)),
            instances=tuple(self._instances()),
            bucket=self._bucket.exists(),
            others=leftovers(self._clients, self._config),
            images=found if with_images else (),
            builders=self._builders(with_images=with_images),
            kept=() if with_images else found,
            # A failed build or an interrupted destroy leaves this stack without an image.
            images_stack=stack_status(cloudformation, names.IMAGES_STACK) if with_images else "",
        )

    def destroy(self, *, with_images: bool) -> None:
        """Delete everything.

        May be repeated. Raises DestroyIncomplete with the resources that still exist.
        """
        with self._report.phase("Ending instances") as phase:
            self._end_instances(phase)
        abandoned_builders.end(self._clients.client("ec2"), self._builders(with_images=with_images))
        if self._bucket.exists():
            with self._report.phase("Emptying the bucket") as phase:
                phase.result(f"{self._bucket.empty()} objects")
        with self._report.phase(f"Deleting stack {names.stack(self._config)}") as phase:
            self._delete_stack(names.stack(self._config), phase)
        if with_images:
            with self._report.phase("Deleting images") as phase:
                self._delete_images(phase)
        with self._report.phase("Looking for what is left") as phase:
            self._verify(phase)

    def _instances(self) -> list[str]:
        pages = (
            self._clients.client("ec2")
            .get_paginator("describe_instances")
            .paginate(
                Filters=[
                    {"Name": f"tag:{tags.CLUSTER}", "Values": [self._config.cluster]},
                    {
                        "Name": "instance-state-name",
                        "Values": ["pending", "running", "shutting-down", "stopping", "stopped"],
                    },
                ]
            )
        )
        instances = [
            instance
            for page in pages
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        ]
        instances.sort(key=lambda instance: not _is_head(instance))
        return [instance["InstanceId"] for instance in instances]

    def _builders(self, *, with_images: bool) -> tuple[str, ...]:
        """Return the abandoned builders; all builders if no image is to stay."""
        ec2 = self._clients.client("ec2")
        if with_images:
            return tuple(abandoned_builders.everyone(ec2))
        return abandoned_builders.forgotten(ec2, abandoned_builders.now())

    def _end_instances(self, phase: Phase) -> None:
        ec2 = self._clients.client("ec2")
        deadline = self._clock() + INSTANCES_SECONDS
        ended: set[str] = set()
        total = 0
        # Listed again each time: a launch may have been in progress when the head node ended.
        while living := self._instances():
            fresh = [instance for instance in living if instance not in ended]
            for at in range(0, len(fresh), TERMINATE_AT_ONCE):
                ec2.terminate_instances(InstanceIds=fresh[at : at + TERMINATE_AT_ONCE])
            ended.update(fresh)
            total = len(ended)
            phase.update("ending", done=total - len(living), total=total)
            if self._clock() > deadline:
                raise DestroyIncomplete(
                    f"instances don't end: {', '.join(living)}",
                    next_step="look at them in EC2, then run destroy again",
                )
            self._sleep(POLL_SECONDS)
        phase.result(f"{total} ended")

    def _delete_stack(self, stack: str, phase: Phase) -> None:
        cloudformation = self._clients.client("cloudformation")
        if not stack_status(cloudformation, stack):
            phase.result("there is none")
            return
        # By id from here on: CloudFormation forgets the name once the stack is gone.
        stack_id = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackId"]
        total = len(cloudformation.describe_stack_resources(StackName=stack_id)["StackResources"])
        skip = frozenset[str]()
        cloudformation.delete_stack(StackName=stack_id)
        status = wait_for_stack(
            cloudformation,
            stack_id,
            phase,
            total=total,
            skip=skip,
            sleep=self._sleep,
            clock=self._clock,
        )
        if status not in {"", "DELETE_COMPLETE"}:
            raise DestroyIncomplete(
                f"stack {stack} is {status}\n{failures(cloudformation, stack_id, skip)}",
                next_step="mend the cause, then run destroy again",
            )

    def _delete_images(self, phase: Phase) -> None:
        ec2 = self._clients.client("ec2")
        found = images.find(ec2, _image_names())
        for image in found.values():
            images.delete(ec2, image)
        bucket = names.images_bucket(self._config, self._clients.account)
        store = Bucket(self._clients.client("s3"), bucket)
        if store.exists():
            store.empty()
        self._delete_stack(names.IMAGES_STACK, phase)
        phase.result(f"{len(found)} images")

    def _verify(self, phase: Phase) -> None:
        deadline = self._clock() + SETTLE_SECONDS
        while found := leftovers(self._clients, self._config):
            phase.update(f"{len(found)} left")
            for item in found:
                remove(self._clients, item)
            if self._clock() > deadline:
                listed = "\n".join(f"  {item}" for item in found)
                raise DestroyIncomplete(
                    f"still there:\n{listed}", next_step="delete these by hand, or run it again"
                )
            self._sleep(POLL_SECONDS)
        phase.result("nothing")


def _image_names() -> list[str]:
    return [f"toolkit-{kind}-*" for kind in names.IMAGE_KINDS]


def _is_head(instance: Any) -> bool:
    label = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
    return label.get(tags.ROLE) == ROLE_HEAD
