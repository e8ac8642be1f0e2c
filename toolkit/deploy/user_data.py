"""The user data of the cluster's instances: what each runs at its first boot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slurmplugins.cloud import tags
from toolkit.deploy import names
from toolkit.deploy.job_places import jobs_use_s3
from toolkit.deploy.site_node import site_node_settings
from toolkit.deploy.templates import render
from toolkit.errors import DeployError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.config import ClusterConfig
    from toolkit.deploy.site_node import SiteNode

# EC2's limit for user data, before base64.
MAX_USER_DATA = 16 * 1024


def stack_scripts(
    config: ClusterConfig, bucket: str, logins: Iterable[str], site: SiteNode | None = None
) -> dict[str, str]:
    """Return the user data of all instances of the stack.

    Raises DeployError if one is too long.
    """
    scripts = {
        "head": head_script(config, bucket),
        "compute": compute_script(config, bucket, site),
        **{name: login_script(config, bucket, name) for name in logins},
    }
    for kind, script in scripts.items():
        size = len(script.encode())
        if size > MAX_USER_DATA:
            raise DeployError(
                f"the {kind} node's user data has {size} bytes; EC2 accepts {MAX_USER_DATA}"
            )
    return scripts


def head_script(config: ClusterConfig, bucket: str) -> str:
    """Return the head node's user data.

    Nothing in it changes with a deploy.
    """
    boot = boot_settings(config, bucket=bucket, status=names.HEAD_STATUS, playbook="site.yml")
    return render("user_data_head.sh.j2", {"cluster": config.cluster, "boot": boot})


def compute_script(config: ClusterConfig, bucket: str, site: SiteNode | None = None) -> str:
    """Return a compute node's user data.

    CloudFormation fills in the values that it alone knows.
    """
    if site is not None:
        node = site_node_settings(config, bucket, site)
        return render("user_data_compute.sh.j2", {"cluster": config.cluster, "node": node})
    own_settings = {
        "job_role": "${JobRole.Arn}" if jobs_use_s3(config) else None,
        "log_group": names.log_group(config) if config.logs.enabled else None,
    }
    node = {**_node_settings(config, bucket), **own_settings}
    return render("user_data_compute.sh.j2", {"cluster": config.cluster, "node": node})


def login_script(config: ClusterConfig, bucket: str, name: str) -> str:
    """Return a login node's user data.

    Nothing in it changes with a setting: EC2 runs it at the first boot alone.
    """
    node = {**_node_settings(config, bucket), "login_node": name}
    return render("user_data_login.sh.j2", {"cluster": config.cluster, "node": node})


def _node_settings(config: ClusterConfig, bucket: str) -> dict[str, Any]:
    return {
        "cluster": config.cluster,
        "region": config.aws.region,
        "endpoint_url": config.aws.endpoint_url,
        "head_address": str(config.network.head_address),
        "secret_id": names.secret(config),
        "shared": {
            "dns": "${SharedFilesystem.DNSName}",
            "mount_name": "${SharedFilesystem.LustreMountName}",
            "path": "/shared",
        },
        "bucket": bucket,
    }


def builder_script(config: ClusterConfig, *, bucket: str, image: str, sha: str) -> str:
    """Return a builder's user data; it names the bundle to use.

    The bundle defines the kind of image. Without a bucket the script is the same at
    every endpoint: its hash goes into the image's name then.
    """
    boot = boot_settings(
        config,
        bucket=bucket,
        status=names.image_status(image),
        playbook="image.yml",
        bundle=sha,
    )
    if not bucket:
        boot["endpoint_url"] = None
    return render("user_data_builder.sh.j2", {"image_name": image, "boot": boot})


def boot_settings(
    config: ClusterConfig,
    *,
    bucket: str,
    status: str,
    playbook: str,
    bundle: str = "",
) -> dict[str, Any]:
    """Return the values for first_boot.py.j2."""
    return {
        "region": config.aws.region,
        "endpoint_url": config.aws.endpoint_url,
        "bucket": bucket,
        "bundle": bundle,
        "bundle_tag": tags.BUNDLE,
        "status": status,
        "playbook": playbook,
    }
