"""Machine images: the ones a cluster needs, and the ones that exist.

An image's name holds the hash of all its input, so an existing image of that name is
right.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.deploy import names
from toolkit.deploy.bundle import image_bundle, image_files
from toolkit.deploy.instances import tag_values
from toolkit.deploy.user_data import builder_script
from toolkit.errors import BaseImageMissing
from toolkit.render import image_vars
from toolkit.render.playbook_vars import has_jobscripts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import ImageTypeDef

    from toolkit.config import ClusterConfig
    from toolkit.deploy.bundle import Bundle
    from toolkit.render.slurm_packages import SlurmPackages

SLURM_TAG: Final = "toolkit:slurm"
"""Of an image: the version of its Slurm."""


@dataclass(frozen=True, slots=True)
class BaseImage:
    """An image to build on."""

    id: str
    name: str
    root_device: str
    created: str = ""  # as EC2 writes it


@dataclass(frozen=True, slots=True)
class ImageInput:
    """The input of images besides cluster.yaml."""

    base: BaseImage
    packages: SlurmPackages | None = None  # None: the system's own Slurm

    def slurm(self, config: ClusterConfig) -> str:
        """Return Slurm's version, or its series where the system chooses the rest."""
        return config.slurm.version if self.packages is None else self.packages.release


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """An image that a cluster needs, and the builder's bundle."""

    kind: str
    name: str
    bundle: Bundle
    slurm: str  # 25.11.8 of locked packages, the series alone otherwise


@dataclass(frozen=True, slots=True)
class Image:
    """An existing image."""

    id: str
    name: str
    state: str
    created: str
    snapshots: tuple[str, ...]
    slurm: str = ""  # "": built before images had this tag


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


def required_images(config: ClusterConfig, source: ImageInput) -> tuple[ImageSpec, ...]:
    """Return the images that this configuration needs. Pure.

    The same files, base and packages give the same names.
    """
    specs = []
    files = image_files(with_jobscripts=has_jobscripts(config))
    for kind in names.IMAGE_KINDS if config.site is None else ("compute",):
        variables = {"vars.json": image_vars(config, kind, source.packages)}
        bundle = image_bundle(files, variables)
        # The script is part of the image's input; the place of its bundle is not.
        script = builder_script(config, bucket="", image="", sha=bundle.sha)
        digest = hashlib.sha256(f"{kind}\0{source.base.id}\0{bundle.sha}\0{script}".encode())
        name = names.image(kind, digest.hexdigest())
        specs.append(ImageSpec(kind, name, bundle, source.slurm(config)))
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
    return {item["Name"]: _image(item) for page in pages for item in page["Images"]}


def slurm_of(ec2: EC2Client, image_id: str) -> str:
    """Return an own image's Slurm, "" if it is not known."""
    found = ec2.describe_images(
        Owners=["self"], Filters=[{"Name": "image-id", "Values": [image_id]}]
    )["Images"]
    return _image(found[0]).slurm if found else ""


def _image(item: ImageTypeDef) -> Image:
    mappings = item.get("BlockDeviceMappings", ())
    snapshots = (mapping.get("Ebs", {}).get("SnapshotId") for mapping in mappings)
    return Image(
        id=item["ImageId"],
        name=item["Name"],
        state=str(item["State"]),
        created=str(item["CreationDate"]),
        snapshots=tuple(snapshot for snapshot in snapshots if snapshot),
        slurm=tag_values(item).get(SLURM_TAG, ""),
    )


def delete(ec2: EC2Client, image: Image) -> None:
    """Deregister an image and delete its snapshots."""
    ec2.deregister_image(ImageId=image.id)
    for snapshot in image.snapshots:
        ec2.delete_snapshot(SnapshotId=snapshot)
