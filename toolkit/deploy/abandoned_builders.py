"""Image builders that a killed deploy left running. They cost money.

No cluster owns a builder, as none owns an image. Therefore every deploy and destroy
here looks for them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from slurmplugins.cloud import tags
from toolkit.deploy import images, instances, names
from toolkit.deploy.build import BUILD_SECONDS, COPY_SECONDS, IMAGE_TAG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_ec2 import EC2Client

# No deploy waits longer for a build and the copy of its disk.
LONGEST_BUILD = timedelta(seconds=BUILD_SECONDS + COPY_SECONDS)


def now() -> datetime:
    """Return the time by which a builder's age is judged."""
    return datetime.now(UTC)


def find_all(ec2: EC2Client) -> dict[str, tuple[str, datetime]]:
    """Return every builder that exists: its image and its start."""
    builders = instances.find(ec2, {tags.ROLE: names.ROLE_BUILDER}, instances.NOT_TERMINATING)
    return {
        item["InstanceId"]: (instances.tag_values(item).get(IMAGE_TAG, ""), item["LaunchTime"])
        for item in builders
    }


def find_abandoned(ec2: EC2Client, at: datetime) -> tuple[str, ...]:
    """Return the builders that no deploy waits for.

    Their image exists, or they are too old.
    """
    builders = find_all(ec2)
    if not builders:
        return ()
    image_names = sorted({image for image, _ in builders.values() if image}) or ["-"]
    existing = images.find(ec2, image_names).values()
    finished_images = {image.name for image in existing if image.state == "available"}
    return tuple(
        builder
        for builder, (image, launched_at) in builders.items()
        if image in finished_images or at - launched_at > LONGEST_BUILD
    )


def terminate(ec2: EC2Client, builders: Sequence[str]) -> None:
    """Terminate these builders; their disks are deleted with them."""
    if builders:
        ec2.terminate_instances(InstanceIds=list(builders))
