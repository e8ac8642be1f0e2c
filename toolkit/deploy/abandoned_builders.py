"""Image builders that a killed deploy left: nobody waits for them, and each costs money.

No cluster owns a builder, as none owns an image; whoever deploys or destroys here looks for them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from slurmplugins.cloud import tags
from toolkit.deploy import images, names
from toolkit.deploy.build import ALIVE, BUILD_SECONDS, COPY_SECONDS, IMAGE_TAG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_ec2 import EC2Client

# No deploy waits longer for a build and the copy of its disk.
AWAITED = timedelta(seconds=BUILD_SECONDS + COPY_SECONDS)


def now() -> datetime:
    """The time by which a builder's age is judged."""
    return datetime.now(UTC)


def everyone(ec2: EC2Client) -> dict[str, tuple[str, datetime]]:
    """Every builder that exists: the image that it is for, and when it was started."""
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[
            {"Name": f"tag:{tags.ROLE}", "Values": [names.ROLE_BUILDER]},
            {"Name": "instance-state-name", "Values": ALIVE},
        ]
    )
    return {
        instance["InstanceId"]: (
            next((tag["Value"] for tag in instance["Tags"] if tag["Key"] == IMAGE_TAG), ""),
            instance["LaunchTime"],
        )
        for page in pages
        for group in page["Reservations"]
        for instance in group["Instances"]
    }


def forgotten(ec2: EC2Client, at: datetime) -> tuple[str, ...]:
    """The builders that no deploy waits for: the image is there, or they are too old."""
    living = everyone(ec2)
    if not living:
        return ()
    found = images.find(ec2, sorted({image for image, _ in living.values() if image}) or ["-"])
    ready = {image.name for image in found.values() if image.state == "available"}
    return tuple(
        instance
        for instance, (image, started) in living.items()
        if image in ready or at - started > AWAITED
    )


def end(ec2: EC2Client, builders: Sequence[str]) -> None:
    """Terminate these; their disks go with them."""
    if builders:
        ec2.terminate_instances(InstanceIds=list(builders))
