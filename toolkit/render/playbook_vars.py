"""Renders vars.json, the playbooks' variables. No secrets; names start with `toolkit_`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toolkit.render.context import head_hostname
from toolkit.render.slurm import CONTAINERS_SINCE
from toolkit.render.slurm_packages import package_vars
from toolkit.render.topology import has_topology
from toolkit.render.versions import SlurmVersion

if TYPE_CHECKING:
    from toolkit.config.model import ClusterConfig, User
    from toolkit.render.slurm_packages import SlurmPackages
    from toolkit.render.stack import StackFacts

HOMES = "/shared/home"

TRAINING_REQUIREMENTS = ("xxhash>=4.0",)
"""Requirements of toolkit.training, in every training environment beside the cluster's own."""


def site_vars(config: ClusterConfig, facts: StackFacts) -> str:
    """Return the variables for site.yml and verify.yml, on the head."""
    return _dump(
        _head_vars(config)
        | {
            "toolkit_cluster": config.cluster,
            "toolkit_slurm_version": config.slurm.version,
            "toolkit_region": config.aws.region,
            "toolkit_endpoint_url": config.aws.endpoint_url or "",
            "toolkit_bucket": facts.bucket,
            "toolkit_secret_id": facts.secret_id,
            "toolkit_mlflow_role": facts.mlflow_role,
            "toolkit_logs": config.logs.enabled,
            "toolkit_alarms": config.alarms.enabled,
            "toolkit_head_hostname": head_hostname(config),
            "toolkit_head_address": str(config.network.head_address),
            "toolkit_shared_source": facts.shared_source,
            "toolkit_head_volume": facts.head_volume,
            "toolkit_head_data_gib": config.head.data_gib,
            "toolkit_backup_bucket": facts.backup_bucket,
            "toolkit_backups_enabled": config.backups.enabled,
            "toolkit_backup_seconds": config.backups.period,
            "toolkit_partitions": list(config.partitions),
            "toolkit_containers": SlurmVersion.parse(config.slurm.version) >= CONTAINERS_SINCE,
            "toolkit_topology": has_topology(config),
            "toolkit_submit_line": config.slurm.submit_line,
            "toolkit_private_data": list(config.slurm.private_data),
            "toolkit_site_facts": _site_facts(config, facts.bucket),
            "toolkit_users": [_user(user) for user in config.users],
            "toolkit_ssh_keys": {user.name: list(user.ssh_keys) for user in config.users},
            "toolkit_login_nodes": config.login_nodes.count > 0,
            "toolkit_max_user_share": config.login_nodes.max_user_share,
        }
    )


def image_vars(config: ClusterConfig, kind: str, packages: SlurmPackages | None = None) -> str:
    """Return the variables for image.yml.

    They hold nothing of one cluster alone: clusters with the same needs share an image.
    Variables that an image does not use are left out, because images are named after
    all their input. A change of the training environment must not rebuild the compute
    image.
    """
    values: dict[str, Any] = {"image_kind": kind, "toolkit_slurm_version": config.slurm.version}
    if packages is not None:
        values |= package_vars(packages)
    if config.profile == "aws":
        values |= {"toolkit_ec2": True} | (_driver_vars(config) if kind == "compute" else {})
    if kind == "compute" and has_jobscripts(config):
        values |= {"toolkit_jobscripts": True} | _environment_vars(config)
    return _dump(values | (_head_vars(config) if kind == "head" else {}))


def has_jobscripts(config: ClusterConfig) -> bool:
    """Return whether the compute image has the job scripts."""
    return config.site is not None and config.site.jobscripts


def _driver_vars(config: ClusterConfig) -> dict[str, Any]:
    """Return the drivers of these pools' devices that the kernel lacks."""
    pools = config.pools.values()
    return {
        name: True
        for name, is_needed in (
            ("toolkit_gpus", any(pool.shape.gpus for pool in pools)),
            ("toolkit_efa", any(pool.efa for pool in pools)),
        )
        if is_needed
    }


def _head_vars(config: ClusterConfig) -> dict[str, Any]:
    return {"toolkit_mlflow_enabled": config.mlflow.enabled, **_environment_vars(config)}


def _environment_vars(config: ClusterConfig) -> dict[str, Any]:
    """Return the Python environment of jobs."""
    return {
        "toolkit_training_python": config.training.python,
        "toolkit_training_requirements": [
            *config.training.requirements,
            *TRAINING_REQUIREMENTS,
            *_s3_requirements(config),
            *_gpu_requirements(config),
        ],
    }


def _s3_requirements(config: ClusterConfig) -> list[str]:
    """Return the requirements for reading datasets and copying checkpoints.

    A join has no shared filesystem, so its data come from S3.
    """
    needs_s3 = config.data.in_s3 or config.training.checkpoints or config.site is not None
    return ["boto3"] if needs_s3 else []


def _gpu_requirements(config: ClusterConfig) -> list[str]:
    """Return the requirements for recording GPU use."""
    has_gpus = config.profile == "aws" and any(pool.shape.gpus for pool in config.pools.values())
    return ["nvidia-ml-py"] if has_gpus else []


def _site_facts(config: ClusterConfig, bucket: str) -> dict[str, Any]:
    """Return training.json, by the names that `toolkit.training` reads.

    Values that are not set are left out. Region and endpoint are for any bucket, the
    cluster's or a user's.
    """
    facts = {
        "aws_region": config.aws.region,
        "aws_endpoint_url": config.aws.endpoint_url,
        "checkpoints": config.training.checkpoints_url(bucket=bucket),
        "data_store": config.data.store_url(bucket=bucket),
        "data_cache": config.data.cache,
        "data_cache_gib": config.data.cache_gib,
        "interruptions_per_machine_hour": config.training.interruptions_per_machine_hour,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _user(user: User) -> dict[str, Any]:
    return {
        "name": user.name,
        "uid": user.uid,
        "gid": user.uid,
        "home": f"{HOMES}/{user.name}",
        "shell": "/bin/bash",
        "groups": [],
    }


def _dump(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2) + "\n"
