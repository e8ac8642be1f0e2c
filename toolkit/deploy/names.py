"""What the toolkit calls things in AWS: each name has its one home here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurmplugins.model import instance

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig

IMAGES_STACK = "toolkit-images"

ROLE_BUILDER = instance.ROLE_BUILDER
IMAGE_KINDS = ("head", "compute")

BUNDLE_CURRENT = "bundle/current"
HEAD_STATUS = "status/head.json"
COMMAND_OUTPUT = "ssm"


def stack(config: ClusterConfig) -> str:
    """The cluster's CloudFormation stack."""
    return f"toolkit-{config.cluster}"


def bucket(config: ClusterConfig, account: str) -> str:
    """The cluster's bucket; the account and region make it unique in the world."""
    return f"{config.cluster}-{account}-{config.aws.region}"


def images_bucket(config: ClusterConfig, account: str) -> str:
    """The bucket of image builds, one an account and region."""
    return f"toolkit-images-{account}-{config.aws.region}"


def secret(config: ClusterConfig) -> str:
    """The secret that holds slurm.key."""
    return f"{config.cluster}/slurm-key"


def bundle(sha: str) -> str:
    """Where a bundle is in either bucket."""
    return f"bundle/{sha}.zip"


def image_status(build: str) -> str:
    """Where a builder says how it goes, in the images bucket."""
    return f"status/{build}.json"


def image(kind: str, digest: str) -> str:
    """An image's name: what it is for, and the hash of all that went into it."""
    return f"toolkit-{kind}-{digest[:12]}"


def logical(text: str) -> str:
    """CloudFormation's logical ids know letters and digits only: `us-east-1a` → `UsEast1a`."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", text))
