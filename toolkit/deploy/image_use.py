"""Finds what else depends on an image: other clusters' launch templates and instances.

A deregistered image starts no instance, so a template that names it is broken:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/deregister-ami.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud import tags
from toolkit.deploy import instances, names
from toolkit.deploy.instances import tag_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mypy_boto3_ec2 import EC2Client

    from toolkit.deploy.images import Image

# The most that EC2 returns in one page.
PAGE: Final = 200
# Launches use these two; nothing starts from an older version by itself.
VERSIONS: Final = ("$Latest", "$Default")


@dataclass(frozen=True, slots=True)
class UsedImage:
    """An image that something outside the cluster depends on."""

    image: Image
    user: str  # in words; the first of several

    def __str__(self) -> str:
        return f"image {self.image.name} stays: {self.user} uses it"


def used_elsewhere(
    ec2: EC2Client, image_list: Sequence[Image], cluster: str
) -> tuple[UsedImage, ...]:
    """Return the images that others than this cluster use."""
    if not image_list:
        return ()
    users: dict[str, str] = {}
    for image_id, user in (*_templates(ec2, cluster), *_instances(ec2, cluster)):
        users.setdefault(image_id, user)
    return tuple(UsedImage(item, users[item.id]) for item in image_list if item.id in users)


def _templates(ec2: EC2Client, cluster: str) -> Iterator[tuple[str, str]]:
    pages = ec2.get_paginator("describe_launch_templates").paginate(
        PaginationConfig={"PageSize": PAGE}
    )
    owners = {
        item["LaunchTemplateId"]: tag_values(item).get(tags.CLUSTER, "")
        for page in pages
        for item in page["LaunchTemplates"]
    }
    version_pages = ec2.get_paginator("describe_launch_template_versions").paginate(
        Versions=list(VERSIONS), PaginationConfig={"PageSize": PAGE}
    )
    for page in version_pages:
        for item in page["LaunchTemplateVersions"]:
            # A template that was made since the first list has an owner that is not known.
            owner = owners.get(item["LaunchTemplateId"], "")
            image_id = item["LaunchTemplateData"].get("ImageId", "")
            if owner != cluster and image_id:
                yield image_id, f"launch template {item['LaunchTemplateName']}{_of(owner)}"


def _instances(ec2: EC2Client, cluster: str) -> Iterator[tuple[str, str]]:
    for item in instances.find(ec2, {}, instances.NOT_TERMINATED):
        labels: Mapping[str, str] = tag_values(item)
        owner = labels.get(tags.CLUSTER, "")
        if owner != cluster and labels.get(tags.ROLE) != names.ROLE_BUILDER:
            yield item.get("ImageId", ""), f"instance {item['InstanceId']}{_of(owner)}"


def _of(owner: str) -> str:
    return f" of cluster {owner}" if owner else ""
