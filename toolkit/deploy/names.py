"""The names of the toolkit's resources in AWS, each defined once here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slurmplugins.model import instance
from toolkit.config.iam import role_name
from toolkit.config.names import BACKUPS_SUFFIX

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig

IMAGES_STACK = "toolkit-images"

ROLE_BUILDER = instance.ROLE_BUILDER
IMAGE_KINDS = ("head", "compute")

HEAD_STATUS = "status/head.json"
COMMAND_OUTPUT = "ssm"
ALARMS = ("head-silent", "head-impaired")


def stack(config: ClusterConfig) -> str:
    """Return the name of the cluster's CloudFormation stack."""
    return f"toolkit-{config.cluster}"


def bucket(config: ClusterConfig, account: str) -> str:
    """Return the name of the cluster's bucket.

    The account and region make it unique in the world.
    """
    return f"{config.cluster}-{account}-{config.aws.region}"


def backups_stack(config: ClusterConfig) -> str:
    """Return the stack of the cluster's backups, which outlives the cluster's own."""
    return f"{stack(config)}{BACKUPS_SUFFIX}"


def backup_bucket(config: ClusterConfig, account: str) -> str:
    """Return the name of the bucket of the cluster's backups.

    No cluster's own bucket ends so, and the longest of these names has the 63 characters of S3.
    """
    return f"{bucket(config, account)}-bak"


def images_bucket(config: ClusterConfig, account: str) -> str:
    """Return the bucket of image builds, one per account and region."""
    return f"toolkit-images-{account}-{config.aws.region}"


def secret(config: ClusterConfig) -> str:
    """Return the name of the secret that holds slurm.key."""
    return f"{config.cluster}/slurm-key"


def role(config: ClusterConfig, kind: str) -> str | None:
    """Return a role's name, None where CloudFormation chooses it."""
    return _role_name(config, config.cluster, kind)


def builder_role(config: ClusterConfig) -> str | None:
    """Return the builders' role, None where CloudFormation chooses the name."""
    return _role_name(config, IMAGES_STACK, ROLE_BUILDER)


def _role_name(config: ClusterConfig, owner: str, kind: str) -> str | None:
    prefix = config.iam.name_prefix
    return role_name(prefix, owner, config.aws.region, kind) if prefix else None


def login_document(config: ClusterConfig) -> str:
    """Return the SSM document that opens a user's session."""
    return f"{stack(config)}-login"


def read_document(config: ClusterConfig) -> str:
    """Return the SSM document of commands that change nothing."""
    return f"{stack(config)}-read"


def log_group(config: ClusterConfig) -> str:
    """Return the group of all logs of the cluster in CloudWatch."""
    return f"/toolkit/{config.cluster}"


def heartbeat_namespace(config: ClusterConfig) -> str:
    """Return the namespace in CloudWatch that the head alone writes to."""
    return f"toolkit/{config.cluster}"


def alarm(config: ClusterConfig, subject: str) -> str:
    """Return the name of an alarm; `subject` is one of ALARMS."""
    return f"{stack(config)}.{subject}"


def login_node(name: str) -> str:
    """Return the logical id of a login node: `Login1` of `login-1`."""
    return logical_id(name)


def bundle(sha: str) -> str:
    """Return a bundle's key in either bucket."""
    return f"bundle/{sha}.zip"


def package(sha256: str, file: str) -> str:
    """Return the key of a package, with its hash in it."""
    return f"packages/{sha256}/{file}"


def image_status(build: str) -> str:
    """Return the key of a builder's status in the images bucket."""
    return f"status/{build}.json"


def image(kind: str, digest: str) -> str:
    """Return an image's name: its kind and the hash of its input."""
    return f"toolkit-{kind}-{digest[:12]}"


def logical_id(text: str) -> str:
    """Return a logical id: letters and digits only, `us-east-1a` → `UsEast1a`."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", text))
