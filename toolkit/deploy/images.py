"""Machine images: the ones a cluster needs, and the ones that exist.

An image's name holds the hash of all its input, so an existing image of that name is
right.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.deploy import names
from toolkit.deploy.bundle import image_bundle
from toolkit.deploy.stack import builder_script
from toolkit.errors import BaseImageMissing
from toolkit.render import image_vars

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef

    from toolkit.config import ClusterConfig
    from toolkit.deploy.bundle import Bundle


@dataclass(frozen=True, slots=True)
class BaseImage:
    """An image to build on."""

    id: str
    name: str
    root_device: str
    created: str = ""  # as EC2 writes it


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """An image that a cluster needs: its kind, its name, and the builder's bundle."""

    kind: str
    name: str
    bundle: Bundle


@dataclass(frozen=True, slots=True)
class Image:
    """An existing image."""

    id: str
    name: str
    state: str
    created: str
    snapshots: tuple[str, ...]


def find_base(ec2: EC2Client, config: ClusterConfig) -> BaseImage:
    """Return the newest image of `images.base`.

    Raises BaseImageMissing when nothing matches.
    """
    base = config.images.base
    images = ec2.describe_images(
        Owners=[base.owner],
        Filters=[
            {"Name": "name", "Values": [base.name]},
            {"Name": "state", "Values": ["available"]},
            {"Name": "architecture", "Values": ["x86_64"]},
        ],
    )["Images"]
    if not images:
        raise BaseImageMissing(
            f"no image of owner {base.owner} is named {base.name} in {config.aws.region}",
            next_step="correct images.base in cluster.yaml",
        )
    return _base(max(images, key=lambda image: (image["CreationDate"], image["ImageId"])))


def base_by_id(ec2: EC2Client, owner: str, image_id: str) -> BaseImage | None:
    """Return an available image of this owner, also a deprecated one.

    EC2 leaves deprecated images out unless asked for them:
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeImages.html
    """
    images = ec2.describe_images(
        Owners=[owner],
        Filters=[
            {"Name": "image-id", "Values": [image_id]},
            {"Name": "state", "Values": ["available"]},
        ],
        IncludeDeprecated=True,
    )["Images"]
    return _base(images[0]) if images else None


def _base(image: ImageTypeDef) -> BaseImage:
    return BaseImage(
        image["ImageId"], image["Name"], image["RootDeviceName"], str(image["CreationDate"])
    )


def required_images(config: ClusterConfig, base: BaseImage) -> tuple[ImageSpec, ...]:
    """Return the images that this configuration needs. Pure.

    The same files and base give the same names.
    """
    specs = []
    for kind in names.IMAGE_KINDS:
        bundle = image_bundle({"vars.json": image_vars(config, kind)})
        # The script is part of the image's input; the place of its bundle is not.
        script = builder_script(config, bucket="", image="", sha=bundle.sha)
        digest = hashlib.sha256(f"{kind}\0{base.id}\0{bundle.sha}\0{script}".encode())
        name = names.image(kind, digest.hexdigest())
        specs.append(ImageSpec(kind, name, bundle))
    return tuple(specs)


def find(ec2: EC2Client, image_names: Iterable[str]) -> dict[str, Image]:
    """Return our own images of these names (wildcards allowed), by name."""
    pages = ec2.get_paginator("describe_images").paginate(
        Owners=["self"],
        Filters=[
            {"Name": "name", "Values": list(image_names)},
            {"Name": "state", "Values": ["available", "pending"]},
        ],
    )
    return {
        item["Name"]: Image(
            id=item["ImageId"],
            name=item["Name"],
            state=str(item["State"]),
            created=item["CreationDate"],
            snapshots=tuple(
                mapping["Ebs"]["SnapshotId"]
                for mapping in item.get("BlockDeviceMappings", ())
                if mapping.get("Ebs", {}).get("SnapshotId")
            ),
        )
        for page in pages
        for item in page["Images"]
    }


def delete(ec2: EC2Client, image: Image) -> None:
    """Deregister an image and delete its snapshots."""
    ec2.deregister_image(ImageId=image.id)
    for snapshot in image.snapshots:
        ec2.delete_snapshot(SnapshotId=snapshot)
